"""Search in what tools printed. The ledger does not keep it, so the files that it was made from are read again."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from ... import event as ev
from ...answer.finds import SearchHit
from ...decode import text_of
from ...reading import RunParser
from ...redact import redact
from ...report import SourceError
from ...source import read_lines
from ..store import Store
from .search import SearchQuery, build_hit
from .where import Filters

ProgressCallback = Callable[[int, int], None]  # told after each file: files done, files in all


class ToolOutputMatches(Struct):
    """What a scan found, and what it could not look at."""

    hits: list[SearchHit]
    files_read: int = 0
    files_missing: int = 0


def search_tool_output(store: Store, what: SearchQuery, filters: Filters, watch: ProgressCallback | None = None) -> ToolOutputMatches:
    """Look through the output of every tool in every source that is still there."""
    found = ToolOutputMatches([])
    projects: dict[str, str | None] = dict(store.query("SELECT id, project FROM sessions"))
    sources = store.query("SELECT path, run FROM sources ORDER BY path")
    seen: set[tuple[str, str]] = set()
    for done, (path, run) in enumerate(sources):
        file = Path(path) / "stdout" if (Path(path) / "stdout").is_file() else Path(path)
        if not file.is_file():
            found.files_missing += 1
            continue
        found.files_read += 1
        for event, tool in _tool_results(read_lines(file)):
            session = event.session or Path(path).stem
            if (session, event.id) not in seen and _matches_filters(event, projects.get(session), filters):
                seen.add((session, event.id))
                found.hits += _hits_in_result(event, tool, what, (session, run, projects.get(session), path))
        if watch is not None:
            watch(done + 1, len(sources))
    found.hits.sort(key=lambda one: -(one.at or 0))
    return found


def _tool_results(data: Iterable[bytes]) -> Iterator[tuple[ev.ToolResult, str | None]]:
    """The answers of tools, each with the name of its tool."""
    names: dict[str, str] = {}
    try:
        for event in RunParser().events(data):
            if isinstance(event, ev.ToolCall):
                names[event.id] = event.name
            elif isinstance(event, ev.ToolResult):
                yield event, names.get(event.id)
    except SourceError:
        return  # it was changed or damaged since: what was read of it counts


def _matches_filters(event: ev.ToolResult, project: str | None, filters: Filters) -> bool:
    at = None if event.at is None else int(event.at.timestamp() * 1000)
    since, until = filters.time_range.since, filters.time_range.until
    if (since is not None or until is not None) and at is None:
        return False
    inside = (since or 0) <= (at or 0) < (until or 1 << 62)
    return inside and (filters.projects is None or project in filters.projects)


def _hits_in_result(event: ev.ToolResult, tool: str | None, what: SearchQuery, about: tuple[str, str | None, str | None, str]) -> Iterator[SearchHit]:
    session, run, project, path = about
    text = text_of(event.content)
    if what.matches(text):
        at = None if event.at is None else int(event.at.timestamp() * 1000)
        one = build_hit((at, session, run, project, "tool", redact(text)), what)
        one.source, one.tool = path, tool
        yield one
