"""The ledger in Python: the queries of `steno runs`, `sessions`, `report`, `search` and `sql`."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from ..errors import StenoError
from ..ledger.importer import ImportResult, import_sources
from ..ledger.protocol import now_ms
from ..ledger.queries import ledger as ledger_queries
from ..ledger.queries import runs, search, sessions
from ..ledger.queries import usage as usage_queries
from ..ledger.queries.filters import Filters, TimeRange, TimeZone, parse_time_range, resolve_filters
from ..ledger.results import Note, RunSummary, SearchHit, SessionSummary
from ..ledger.store import open_ledger
from ..ledger.totals import GROUPINGS, ToolCallStats, UsageReport
from ..report import VERDICTS, Report, Verdict
from . import read

StrPath = str | os.PathLike[str]
RunState = Verdict | Literal["running"]
GroupBy = Literal[
    "day",
    "week",
    "month",
    "project",
    "model",
    "agent",
    "session",
    "host",
    "user",
    "repository",
    "branch",
    "tag",
]
TEXT_FILTERS = ("model", "agent", "host", "user", "repository", "branch")
_OPTION_PREFIX = re.compile(r"--(?=[a-z])")


class QueryScope(TypedDict, total=False):
    """Filters of a query, named like the options of the commands. None: no filter."""

    last: str | timedelta | None
    since: str | date | None
    until: str | date | None
    project: StrPath | None
    model: str | None
    agent: str | None
    host: str | None
    user: str | None
    repository: str | None
    branch: str | None
    tag: str | Sequence[str] | Mapping[str, str] | None  # "name=value", or "name" with any value


class Ledger:
    """The ledger of all runs: the user's, or the one at `location`, a path or a PostgreSQL URL.

        with steno.Ledger() as ledger:
            ledger.add("recordings/")
            for run in ledger.runs(failed=True, last="7d", project="."):
                print(run.run_id, run.verdict, run.cost.usd)
            print(ledger.usage("model", since="2026-11-01").total.usd)

    It is created if it does not exist. `timezone` sets the day boundaries (default: the user's).
    Queries return what is stored; `add` imports new recordings. A filter that matches nothing
    returns nothing. Usable from any thread, one at a time. Raises LedgerError if it cannot be
    opened, read or written, and StenoError for an invalid query.
    """

    def __init__(self, location: StrPath | None = None, *, timezone: str | None = None) -> None:
        self._zone = TimeZone(timezone)
        self._store = open_ledger(None if location is None else _check_path("location", location))

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- runs and sessions ------------------------------------------------------------------------

    def add(self, *paths: StrPath) -> ImportResult:
        """Import new recordings and transcripts at these paths, and nothing else.

        A file that cannot be imported is listed in the result and does not stop the import. Raises
        SourceError if the only path is missing.
        """
        return import_sources(self._store, [_check_path("add", path) for path in paths])

    def import_new(self) -> ImportResult:
        """Import what this machine's agents wrote since the last time.

        Recordings of steno that the ledger does not know are imported too, such as those of killed
        runs.
        """
        from ..runner.run_registry import finished_recordings, lost_runs, recover_runs

        if lost_runs():
            recover_runs(self._store)
        return import_sources(self._store, None, recordings=finished_recordings())

    def runs(
        self,
        *,
        verdict: RunState | Sequence[RunState] | None = None,
        failed: bool = False,
        session: str | None = None,
        top: Literal["cost", "tokens", "time", "turns", "context"] | None = None,
        limit: int | None = None,
        **scope: Unpack[QueryScope],
    ) -> list[RunSummary]:
        """The runs, newest first; with `top`, those with the highest value first.

        `verdict`: one or several, including "running". `failed`: without success, also of the task.
        `session`: an id or its beginning.
        """
        verdicts = [verdict] if isinstance(verdict, str) else list(verdict or ())
        _check_choice("verdict", verdicts, (*VERDICTS, "running"))
        _check_choice("top", [top], runs.RUN_RANKINGS)
        filters = self._filters(scope)
        checked_limit = _check_limit(limit)
        session_id = None
        if session is not None:
            with _reword_errors():
                prefix = _check_text("session", session)
                session_id = runs.get_session_by_prefix(self._store, prefix)
        where = runs.runs_where(filters, [*verdicts], failed, session_id)
        return runs.list_runs(self._store, where, checked_limit, top)

    def sessions(
        self,
        *,
        top: Literal["cost", "tokens", "time", "context"] | None = None,
        limit: int | None = None,
        **scope: Unpack[QueryScope],
    ) -> list[SessionSummary]:
        """The sessions, last active first; with `top`, those with the highest value first."""
        _check_choice("top", [top], sessions.SESSION_RANKINGS)
        return sessions.list_sessions(
            self._store, sessions.sessions_where(self._filters(scope)), _check_limit(limit), top
        )

    def report(self, id_: str) -> Report:
        """The report of a run or session, by id or its beginning.

        A session's report is read from its transcript, else it is that of its last run.
        """
        table, full_id = runs.get_by_prefix(self._store, _check_text("id", id_))
        if table == "runs":
            return self._run_report(full_id)
        for path in sessions.transcript_paths(self._store, full_id):
            if Path(path).exists():
                session = sessions.get_session(self._store, full_id)
                return sessions.complete_report(read(path), session)
        last = self.runs(session=full_id, limit=1)
        if not last:
            raise StenoError(f"{full_id}: transcript not found, and no run of it in the ledger")
        return self._run_report(last[0].id)

    def _run_report(self, id_: str) -> Report:
        report = runs.load_report(self._store, id_)
        if report is not None:
            return report
        source = runs.get_run(self._store, id_).source
        if source is None or not Path(source).exists():
            raise StenoError(
                f"{id_}: no report, and recording not found: {source or 'path unknown'}"
            )
        return read(source)

    # -- totals -----------------------------------------------------------------------------------

    def usage(self, by: GroupBy = "day", **scope: Unpack[QueryScope]) -> UsageReport:
        """Tokens and cost in `rows` by day, week, month, project, model, ..., and in `total`."""
        _check_choice("by", [by], GROUPINGS)
        report = usage_queries.usage_report(self._store, by, self._zone, self._filters(scope))
        if by == "session":
            usage_queries.fill_session_details(self._store, report.rows)
        return report

    def tools(self, **scope: Unpack[QueryScope]) -> list[ToolCallStats]:
        """Calls, errors and times of each tool, most used first. Takes no model filter."""
        for name in ("model", "host", "user", "repository", "branch", "tag"):
            if scope.get(name) is not None:
                raise StenoError(f"{name}: tool calls are not stored by {name}; leave it out")
        return usage_queries.tool_sums(self._store, self._filters(scope))[0]

    # -- texts, SQL and notes ---------------------------------------------------------------------

    def search(
        self,
        text: str,
        *,
        regex: bool = False,
        role: Literal["prompt", "answer", "command"] | None = None,
        limit: int | None = None,
        **scope: Unpack[QueryScope],
    ) -> list[SearchHit]:
        """Prompts and answers with all these words ("a phrase" in double quotes), newest first.

        Takes no model filter.
        """
        if scope.get("model") is not None:
            raise StenoError("model: texts are not stored by model; leave it out")
        _check_choice("role", [role], ("prompt", "answer", "command"))
        filters = self._filters(scope)
        checked_limit = _check_limit(limit)
        with _reword_errors():
            query = search.parse_query(_check_text("text", text), regex)
        hits, _ = search.search_texts(self._store, query, filters, role, checked_limit)
        short_ids = runs.short_ids(self._store, "sessions", [hit.session for hit in hits])
        for hit in hits:
            hit.short_session_id = short_ids[hit.session]
        return hits

    def sql(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of one SELECT, with a value for each `?`. Read-only."""
        names, rows = ledger_queries.run_query(self._store, _check_text("query", query), values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def note(self, id_: str, text: str) -> None:
        """Add a note to a run or session. Secrets are masked."""
        runs.add_note(
            self._store,
            *runs.get_by_prefix(self._store, _check_text("id", id_)),
            now_ms(),
            _check_text("text", text),
        )

    def notes(self, id_: str) -> list[Note]:
        """The notes of a run or session, oldest first."""
        return runs.list_notes(
            self._store, *runs.get_by_prefix(self._store, _check_text("id", id_))
        )

    # -- filters ----------------------------------------------------------------------------------

    def _filters(self, scope: QueryScope) -> Filters:
        unknown = [name for name in scope if name not in QueryScope.__annotations__]
        if unknown:
            known = ", ".join(QueryScope.__annotations__)
            raise TypeError(f"unknown filter {unknown[0]!r}; expected one of {known}")
        project = scope.get("project")
        values: dict[str, Any] = {
            name: _check_text(name, scope[name])  # type: ignore[literal-required]  # from the tuple
            for name in TEXT_FILTERS
            if scope.get(name) is not None
        }
        if project is not None:
            values["project"] = _check_path("project", project)
        return resolve_filters(
            self._store, self._time_range(scope), **values, tag=_tag_texts(scope.get("tag"))
        )

    def _time_range(self, scope: QueryScope) -> TimeRange:
        since = _time_text("since", scope.get("since"))
        until = _time_text("until", scope.get("until"))
        last = scope.get("last")
        now = now_ms()
        if isinstance(last, timedelta):
            if since is not None:
                raise StenoError("last and since exclude each other; use one of them")
            start = max(0, now - round(last.total_seconds() * 1000))
            return TimeRange(start, self._time_range({"until": until}).until)
        last_text = None if last is None else _check_text("last", last)
        with _reword_errors():
            return parse_time_range(self._zone, now, since, until, last_text)


@contextmanager
def _reword_errors() -> Iterator[None]:
    """Turn the option names of a message into keyword names."""
    try:
        yield
    except StenoError as error:
        raise StenoError(_OPTION_PREFIX.sub("", str(error))) from None


def _time_text(name: str, value: str | date | None) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else _check_text(name, value)


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, found {type(value).__name__}")
    if not value.strip():
        raise StenoError(f"{name}: expected text, found none")
    if "\0" in value or value != value.encode("utf-8", "replace").decode("utf-8"):
        raise StenoError(f"{name} {value!r}: contains NUL or unpaired surrogates")
    return value


def _check_path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name}: expected a path, found {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise StenoError(f"{name} {value!r}: expected a path")
    return path


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"limit: expected a whole number, found {type(limit).__name__}")
    if limit is not None and not 0 <= limit < 1 << 63:
        raise StenoError(f"limit {limit}: expected 0 or more, or None for all")
    return limit


def _check_choice(name: str, values: Sequence[str | None], choices: Collection[str]) -> None:
    for value in values:
        if value is not None and value not in choices:
            raise StenoError(f"{name} {value!r}: expected one of {', '.join(choices)}")


def _tag_texts(value: str | Sequence[str] | Mapping[str, str] | None) -> list[str]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    return [_check_text("tag", text) for text in ([value] if isinstance(value, str) else value)]
