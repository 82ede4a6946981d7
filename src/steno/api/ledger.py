"""Questions to the ledger from Python: what `steno runs`, `sessions`, `report`, `search` and `sql` answer, as values.

It joins the rooms, and never prints. What there is to be asked is told by the ledger's own rooms.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from ..errors import StenoError
from ..ledger import importer as pull
from ..ledger.queries import runs, search, sessions, sql
from ..ledger.queries import usage as sums
from ..ledger.queries import usage as tools
from ..ledger.queries.filters import Filters, resolve_filters
from ..ledger.queries.time_range import TimeRange, TimeZone, parse_time_range
from ..ledger.results import Note, RunSummary, SearchHit, SessionSummary
from ..ledger.store import open_ledger
from ..ledger.timestamps import now_ms
from ..ledger.totals import GROUPINGS, ToolCallStats, UsageReport
from ..report import VERDICTS, Report, Verdict
from . import read

StrPath = str | os.PathLike[str]
RunState = Verdict | Literal["running"]
GroupBy = Literal["day", "week", "month", "project", "model", "agent", "session"]
_OPTION_PREFIX = re.compile(r"--(?=[a-z])")  # a message for people at a terminal


class QueryScope(TypedDict, total=False):
    """What a question is about: the same words as the options of the commands. None: everything."""

    last: str | timedelta | None
    since: str | date | None
    until: str | date | None
    project: StrPath | None
    model: str | None
    agent: str | None


class Ledger:
    """The ledger of all runs: the user's own, or the one at `where`, a path or a PostgreSQL URL. It is made if there is none.

        with steno.Ledger() as ledger:
            ledger.add("recordings/")
            for run in ledger.runs(failed=True, last="7d", project="."):
                print(run.run_id, run.verdict, run.cost.usd)
            print(ledger.usage("model", since="2026-11-01").total.usd)

    Days, weeks and months are those of `timezone` (default: the user's). What is asked is answered from what is there; `add`
    takes in what is new. A name that fits nothing finds nothing. Any thread may use it, one at a time. LedgerError: it cannot be
    opened, read or written; StenoError: the question cannot be understood.
    """

    def __init__(self, location: StrPath | None = None, *, timezone: str | None = None) -> None:
        self._zone = TimeZone(timezone)
        self._store = open_ledger(None if location is None else _check_path("where", location))

    def close(self) -> None:
        """Let go of the database."""
        self._store.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what is in it ---------------------------------------------------------------------------------------------

    def add(self, *paths: StrPath) -> pull.ImportResult:
        """Take in recordings, tapes and transcripts, or without a path what the agents on this machine kept; only what is new.

        A file that cannot be taken in is one line of `troubles`, and all others are. SourceError: the only path is not there.
        Without a path, runs whose steno was killed are taken in, too, as far as their tapes go.
        """
        given = [_check_path("add", path) for path in paths]
        if not given:
            from ..runner.run_registration import lost_runs, recover_runs

            if lost_runs():
                recover_runs(self._store)
        return pull.import_sources(self._store, given or None)

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
        """The runs, the newest first; with `top`, those with the most of something.

        `verdict`: only these ("running" is one, too). `failed`: those that ended and did not succeed. `session`: the
        beginning of its id.
        """
        words = [verdict] if isinstance(verdict, str) else list(verdict or ())
        _check_choice("verdict", words, (*VERDICTS, "running"))
        _check_choice("top", [top], runs.RUN_RANKINGS)
        filters, most = self._filters(scope), _check_limit(limit)
        with _reword_errors():
            whose = (
                None
                if session is None
                else runs.get_session_by_prefix(self._store, _check_text("session", session))
            )
        return runs.list_runs(
            self._store, runs.runs_where(filters, [*words], failed, whose), most, top
        )

    def sessions(
        self,
        *,
        top: Literal["cost", "tokens", "time", "context"] | None = None,
        limit: int | None = None,
        **scope: Unpack[QueryScope],
    ) -> list[SessionSummary]:
        """The agents' conversations, those that were at work last first; with `top`, those with the most of something."""
        _check_choice("top", [top], sessions.SESSION_RANKINGS)
        return sessions.list_sessions(
            self._store, sessions.sessions_where(self._filters(scope)), _check_limit(limit), top
        )

    def report(self, id_: str) -> Report:
        """The report of a run, or of a session: from its transcript, else of its last run. The beginning of the id is enough."""
        table, found = runs.get_by_prefix(self._store, _check_text("id", id_))
        if table == "runs":
            return self._run_report(found)
        there = next(
            (path for path in sessions.transcript_paths(self._store, found) if Path(path).exists()),
            None,
        )
        if there is not None:
            return read(there)
        last = self.runs(session=found, limit=1)
        if not last:
            raise StenoError(
                f"{found}: its transcript is not there any more, and no run of it is in the ledger"
            )
        return self._run_report(last[0].id)

    def _run_report(self, id_: str) -> Report:
        report = runs.load_report(self._store, id_)
        if report is not None:
            return report
        place = runs.get_run(self._store, id_).source
        if place is None or not Path(place).exists():
            raise StenoError(
                f"{id_}: it has no report, and its recording is not there: {place or 'its place is not known'}"
            )
        return read(place)

    # -- what it comes to ------------------------------------------------------------------------------------------

    def usage(self, by: GroupBy = "day", **scope: Unpack[QueryScope]) -> UsageReport:
        """What was spent: in `lines` by day, week, month, project, model, agent or session, and in `total`."""
        _check_choice("by", [by], GROUPINGS)
        found = sums.usage_report(self._store, by, self._zone, self._filters(scope))
        if by == "session":
            sums.fill_session_details(self._store, found.rows)
        return found

    def tools(self, **scope: Unpack[QueryScope]) -> list[ToolCallStats]:
        """How each tool fared, the most used first. Calls are not counted by model."""
        if scope.get("model") is not None:
            raise StenoError("model: calls are not counted by model; leave it out")
        return tools.tool_sums(self._store, self._filters(scope))[0]

    # -- what stands in it -----------------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        *,
        regex: bool = False,
        role: Literal["prompt", "answer"] | None = None,
        limit: int | None = None,
        **scope: Unpack[QueryScope],
    ) -> list[SearchHit]:
        """Texts that have all these words ("a phrase" in double quotes), the newest first. They are not kept by model."""
        if scope.get("model") is not None:
            raise StenoError("model: texts are not kept by model; leave it out")
        _check_choice("role", [role], ("prompt", "answer"))
        filters, most = self._filters(scope), _check_limit(limit)
        with _reword_errors():
            what = search.parse_query(_check_text("text", text), regex)
        found, _ = search.search_texts(self._store, what, filters, role, most)
        shorts = runs.short_ids(self._store, "sessions", [hit.session for hit in found])
        for hit in found:
            hit.short_session_id = shorts[hit.session]
        return found

    def sql(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows that one SELECT answers, with a value for each `?` in it. It can only read."""
        names, rows = sql.run_query(self._store, _check_text("question", query), values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def note(self, id_: str, text: str) -> None:
        """Write something down beside a run or a session. Secrets are masked."""
        runs.add_note(
            self._store,
            *runs.get_by_prefix(self._store, _check_text("id", id_)),
            now_ms(),
            _check_text("text", text),
        )

    def notes(self, id_: str) -> list[Note]:
        """What was written beside it, the oldest first."""
        return runs.list_notes(
            self._store, *runs.get_by_prefix(self._store, _check_text("id", id_))
        )

    # -- what is meant ---------------------------------------------------------------------------------------------

    def _filters(self, scope: QueryScope) -> Filters:
        unknown = [name for name in scope if name not in QueryScope.__annotations__]
        if unknown:
            raise TypeError(
                f"a question has no {unknown[0]!r}; it may have: {', '.join(QueryScope.__annotations__)}"
            )
        project, model, agent = scope.get("project"), scope.get("model"), scope.get("agent")
        return resolve_filters(
            self._store,
            self._time_range(scope),
            None if project is None else _check_path("project", project),
            None if model is None else _check_text("model", model),
            None if agent is None else _check_text("agent", agent),
        )

    def _time_range(self, scope: QueryScope) -> TimeRange:
        since, until, last, now = (
            _time_text("since", scope.get("since")),
            _time_text("until", scope.get("until")),
            scope.get("last"),
            now_ms(),
        )
        if isinstance(last, timedelta):
            if since is not None:
                raise StenoError("last and since both say where to begin; give one of them")
            ago = max(0, now - round(last.total_seconds() * 1000))
            return TimeRange(ago, self._time_range({"until": until}).until)
        with _reword_errors():
            return parse_time_range(
                self._zone, now, since, until, None if last is None else _check_text("last", last)
            )


@contextmanager
def _reword_errors() -> Iterator[None]:
    """What is told of an option at a terminal, told of a keyword."""
    try:
        yield
    except StenoError as problem:
        raise StenoError(_OPTION_PREFIX.sub("", str(problem))) from None


def _time_text(name: str, given: str | date | None) -> str | None:
    return (
        None
        if given is None
        else given.isoformat()
        if isinstance(given, date)
        else _check_text(name, given)
    )


def _check_text(name: str, given: object) -> str:
    """Text that can be asked for: not empty, and whole letters."""
    if not isinstance(given, str):
        raise TypeError(f"{name}: expected text, found {type(given).__name__}")
    if not given.strip():
        raise StenoError(f"{name}: expected text, found none")
    if "\0" in given or given != given.encode("utf-8", "replace").decode("utf-8"):
        raise StenoError(f"{name} {given!r}: it holds something that is no letter")
    return given


def _check_path(name: str, given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"{name}: expected a path, found {type(given).__name__}")
    path = os.fspath(given)
    if not isinstance(path, str) or not path or "\0" in path:
        raise StenoError(f"{name} {given!r}: expected a path")
    return path


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"limit: expected a whole number, found {type(limit).__name__}")
    if limit is not None and not 0 <= limit < 1 << 63:
        raise StenoError(f"limit {limit}: expected a number from 0 on, or None for all")
    return limit


def _check_choice(name: str, words: Sequence[str | None], known: Collection[str]) -> None:
    for word in words:
        if word is not None and word not in known:
            raise StenoError(f"{name} {word!r}: expected one of {', '.join(known)}")
