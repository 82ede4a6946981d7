"""Search in what was said: full text by FTS5 or by PostgreSQL's own, or a regular expression. Newest hits first.

The index is made at the first search and takes in what is new at each one. What people type is only ever words to it:
nothing in it can be a syntax error. It never looks into tools' output; `scan` does.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from ... import event as ev
from ...codec.decode import text_of
from ...codec.redact import redact
from ...errors import LedgerError, SourceError, StenoError
from ...recording.open import read_lines
from ...recording.parse import RunParser
from ..results import SearchHit
from ..store import Row, Store
from .filters import Filters, WhereClause

TEXTS_PER_BATCH = 2_000  # texts that are indexed in one transaction, or looked at together: others can write in between
CHARS_BEFORE_HIT = 60  # characters of a text that are shown before the first hit
MAX_SNIPPET_CHARS = 240  # characters that are shown of it in all
CREATE_SQLITE_INDEX = "CREATE VIRTUAL TABLE IF NOT EXISTS texts_index USING fts5(text, content='texts', content_rowid='id')"
# PostgreSQL takes a path, a host or an address for one word; what joins its parts is taken out, so that each is a word.
WORD_SEPARATORS = "/.@:_+-"
TSVECTOR_SQL = (
    f"to_tsvector('simple', translate({{}}, '{WORD_SEPARATORS}', '{' ' * len(WORD_SEPARATORS)}'))"
)
CREATE_POSTGRES_INDEX = (
    f"CREATE INDEX IF NOT EXISTS texts_parts ON texts USING gin ({TSVECTOR_SQL.format('text')})"
)
_SEPARATORS_TO_SPACES = str.maketrans(dict.fromkeys(WORD_SEPARATORS, " "))
SELECT_TEXTS = "SELECT t.at, t.session, t.run, s.project, t.role, t.text, t.id FROM texts t"
JOIN_SESSIONS = "LEFT JOIN sessions s ON s.id = t.session"
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_FROM_UNINDEXED = "FROM texts t LEFT JOIN texts_index_docsize d ON d.id = t.id WHERE d.id IS NULL"

ProgressCallback = Callable[[int, int], None]  # told after each batch: texts done, texts in all


class SearchQuery(Struct):
    """What is searched for: words and phrases that must all occur, or a pattern."""

    terms: list[str]
    pattern: "re.Pattern[str]"  # finds the hits in a text, to mark them
    is_regex: bool = False

    @property
    def indexed_terms(self) -> list[str]:
        """The parts that an index knows something of: those that have a letter or a figure."""
        return (
            []
            if self.is_regex
            else [part for part in self.terms if any(letter.isalnum() for letter in part)]
        )

    def matches(self, text: str) -> bool:
        """Whether all of it occurs in a text."""
        if self.is_regex:
            return self.pattern.search(text) is not None
        low = text.lower()
        return all(part.lower() in low for part in self.terms)


def parse_query(text: str, regex: bool = False) -> SearchQuery:
    """What people typed: words, and phrases in double quotes; or one regular expression. StenoError if it is none."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # halves of letters cannot be asked for
    if regex:
        try:
            return SearchQuery([text], re.compile(text, re.M), True)
        except (re.error, RecursionError, OverflowError) as problem:
            raise StenoError(f"--regex {text}: not a regular expression: {problem}") from None
    parts = [
        " ".join((quoted or word).replace('"', " ").split()) for quoted, word in _TERM.findall(text)
    ]
    parts = [part for part in parts if part]
    if not parts:
        raise StenoError("nothing to search for: give a word")
    return SearchQuery(
        parts,
        re.compile(
            "|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True)), re.I
        ),
    )


def search_texts(
    store: Store,
    what: SearchQuery,
    filters: Filters,
    role: str | None,
    most: int | None,
    watch: ProgressCallback | None = None,
) -> tuple[list[SearchHit], int]:
    """The hits, the newest first, and how many there are in all."""
    where = (
        WhereClause()
        .add_time_range("t.at", filters.time_range)
        .add_in("s.project", filters.projects)
        .add_in("s.agent", filters.agents)
    )
    if role is not None:
        where.add("t.role = ?", role)
    if not what.indexed_terms or not _try_update_index(store, watch):
        hits = sorted(_scan_texts(store, what, where, watch), key=lambda one: -(one.at or 0))
        return hits[:most], len(hits)
    if store.kind == "postgresql":
        where.add(
            f"{TSVECTOR_SQL.format('t.text')} @@ websearch_to_tsquery('simple', ?)",
            _quote_terms(what.indexed_terms).translate(_SEPARATORS_TO_SPACES),
        )
        joined = ""
    else:
        where.add("texts_index MATCH ?", _quote_terms(what.indexed_terms))
        joined = " JOIN texts_index ON texts_index.rowid = t.id"
    counted = f"SELECT count(*) FROM texts t{joined} {JOIN_SESSIONS}{where.sql}"
    total = int(store.query(counted, where.values)[0][0])
    limit = f" LIMIT {most}" if most is not None else ""
    sql = f"{SELECT_TEXTS}{joined} {JOIN_SESSIONS}{where.sql} ORDER BY t.at DESC, t.id{limit}"
    return [build_hit(row, what) for row in store.query(sql, where.values)], total


def _scan_texts(
    store: Store, what: SearchQuery, where: WhereClause, watch: ProgressCallback | None
) -> Iterator[SearchHit]:
    """The hits among all texts, looked at one by one: the index cannot tell. Only some are held at a time."""
    total = int(store.query("SELECT count(*) FROM texts")[0][0])
    done, last = 0, -1
    while True:
        part = WhereClause()
        part.conditions, part.values = [*where.conditions], [*where.values]
        part.add("t.id > ?", last)
        rows = store.query(
            f"{SELECT_TEXTS} {JOIN_SESSIONS}{part.sql} ORDER BY t.id LIMIT {TEXTS_PER_BATCH}",
            part.values,
        )
        yield from (build_hit(row, what) for row in rows if what.matches(row[5]))
        if len(rows) < TEXTS_PER_BATCH:
            return
        done, last = done + len(rows), rows[-1][6]
        if watch is not None:
            watch(done, total)


def _quote_terms(parts: list[str]) -> str:
    """Each part as a phrase: both databases read it like this, and nothing in it has a meaning of its own."""
    return " ".join(f'"{part}"' for part in parts)


def build_hit(row: Row, what: SearchQuery) -> SearchHit:
    """A row with a piece of its text around what was found."""
    text = row[5]
    first = next((found.start() for found in what.pattern.finditer(text)), 0)
    begin = max(0, first - CHARS_BEFORE_HIT)
    snippet = (
        ("…" if begin else "")
        + text[begin : begin + MAX_SNIPPET_CHARS]
        + ("…" if len(text) > begin + MAX_SNIPPET_CHARS else "")
    )
    snippet = redact(snippet)
    marks = [
        found.span() for found in what.pattern.finditer(snippet) if found.end() > found.start()
    ]
    at, session, run, project, role = row[:5]
    return SearchHit(at, session, run, project, role, snippet, marks)


# -- the index ---------------------------------------------------------------------------------------------------


def _try_update_index(store: Store, watch: ProgressCallback | None) -> bool:
    """Whether the index holds every text. Where it cannot be written (a copy that one may only read), it may not."""
    try:
        if store.kind == "postgresql":
            create_postgres_index(store)
        else:
            update_sqlite_index(store, watch)
    except LedgerError:
        return False
    return True


def update_sqlite_index(store: Store, watch: ProgressCallback | None = None) -> None:
    """Make the index where there is none, and take in what is not in it yet."""
    if not store.query("SELECT 1 FROM sqlite_master WHERE name = 'texts_index'"):
        with store.transaction():
            store.execute(CREATE_SQLITE_INDEX)
    total = int(store.query(f"SELECT count(*) {_FROM_UNINDEXED}")[0][0])
    done = 0
    while done < total:
        with store.transaction():
            added = store.execute(
                f"INSERT INTO texts_index (rowid, text) SELECT t.id, t.text {_FROM_UNINDEXED} LIMIT {TEXTS_PER_BATCH}"
            )
        if added <= 0:
            break
        done += added
        if watch is not None:
            watch(done, total)


def create_postgres_index(store: Store) -> None:
    """Make the index where there is none; the server keeps it up to date."""
    if not store.query("SELECT to_regclass('texts_parts')")[0][0]:
        with store.transaction():
            store.execute(CREATE_POSTGRES_INDEX)


def drop_index(store: Store) -> None:
    """Drop the index: the next search makes it anew."""
    store.execute(
        "DROP INDEX IF EXISTS texts_parts"
        if store.kind == "postgresql"
        else "DROP TABLE IF EXISTS texts_index"
    )


class ToolOutputMatches(Struct):
    """What a scan found, and what it could not look at."""

    hits: list[SearchHit]
    files_read: int = 0
    files_missing: int = 0


def search_tool_output(
    store: Store, what: SearchQuery, filters: Filters, watch: ProgressCallback | None = None
) -> ToolOutputMatches:
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
            if (session, event.id) not in seen and _matches_filters(
                event, projects.get(session), filters
            ):
                seen.add((session, event.id))
                found.hits += _hits_in_result(
                    event, tool, what, (session, run, projects.get(session), path)
                )
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


def _hits_in_result(
    event: ev.ToolResult,
    tool: str | None,
    what: SearchQuery,
    about: tuple[str, str | None, str | None, str],
) -> Iterator[SearchHit]:
    session, run, project, path = about
    text = text_of(event.content)
    if what.matches(text):
        at = None if event.at is None else int(event.at.timestamp() * 1000)
        one = build_hit((at, session, run, project, "tool", redact(text)), what)
        one.source, one.tool = path, tool
        yield one
