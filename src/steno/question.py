"""Questions to the ledger from Python: what `steno runs`, `sessions`, `report`, `search` and `sql` answer, as values.

It joins the rooms, and never prints. What there is to be asked is told by the ledger's own rooms.
"""

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, Unpack

from .answer.finds import Hit
from .answer.lists import Run, Session
from .answer.sums import KEYS, ToolSums, Usage
from .api import read
from .ledger import pull
from .ledger.ask import runs, search, sessions, sql, sums, tools
from .ledger.ask.spans import span
from .ledger.ask.where import Filters, filtered
from .ledger.ask.zones import Zone
from .ledger.settle import stored
from .ledger.store import open_ledger
from .report import VERDICTS, Report, StenoError

Where = str | os.PathLike[str]


class Scope(TypedDict, total=False):
    """What a question is about: the same words as the options of the commands. None: everything."""

    last: str | None
    since: str | datetime | None
    until: str | datetime | None
    project: Where | None
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
    takes in what is new. One thread at a time may use it. LedgerError: it cannot be opened, read or written; StenoError: the
    question cannot be understood.
    """

    def __init__(self, where: Where | None = None, *, timezone: str | None = None) -> None:
        self._where = None if where is None else os.fspath(where)
        self._zone = Zone(timezone)
        self._store = open_ledger(self._where)

    def close(self) -> None:
        """Let go of the database."""
        self._store.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- what is in it ---------------------------------------------------------------------------------------------

    def add(self, *paths: Where) -> pull.Pulled:
        """Take in recordings, tapes and transcripts, or without a path what the agents on this machine kept; only what is new.

        A file that cannot be taken in is one line of `troubles`, and all others are. SourceError: the only path is not there.
        """
        return pull.pull(self._store, [os.fspath(path) for path in paths] or None)

    def runs(
        self,
        *,
        verdict: str | Sequence[str] = (),
        failed: bool = False,
        session: str | None = None,
        top: str | None = None,
        limit: int | None = None,
        **scope: Unpack[Scope],
    ) -> list[Run]:
        """The runs, the newest first; with `top`, those with the most cost, tokens, time, turns or context.

        `verdict`: only these ("running" is one, too). `failed`: those that ended and did not succeed. `session`: the
        beginning of its id.
        """
        words = [verdict] if isinstance(verdict, str) else list(verdict)
        _among("verdict", words, (*VERDICTS, "running"))
        _among("top", [top] if top is not None else [], runs.TOP)
        whose = runs.session_named(self._store, session) if session is not None else None
        return runs.runs(self._store, runs.conditions(self._filters(scope), words, failed, whose), _limit(limit), top)

    def sessions(self, *, top: str | None = None, limit: int | None = None, **scope: Unpack[Scope]) -> list[Session]:
        """The agents' conversations, those that were at work last first; with `top`, those with the most of something."""
        _among("top", [top] if top is not None else [], sessions.TOP)
        return sessions.sessions(self._store, sessions.conditions(self._filters(scope)), _limit(limit), top)

    def report(self, id_: str) -> Report:
        """The report of one run, or of one session from its transcript; the beginning of the id is enough."""
        table, found = runs.found(self._store, id_)
        if table == "runs":
            report = stored(self._store, found)
            if report is not None:
                return report
            places = [runs.one(self._store, found).source]
        else:
            places = [*sessions.transcripts(self._store, found)]
        there = next((place for place in places if place is not None and Path(place).exists()), None)
        if there is None:
            where = next(filter(None, places), "its place is not known")
            raise StenoError(f"{found}: it has no report, and what it was read from is not there any more: {where}")
        return read(there)

    # -- what it comes to ------------------------------------------------------------------------------------------

    def usage(self, by: str = "day", **scope: Unpack[Scope]) -> Usage:
        """What was spent, in `lines` by day, week, month, project, model, agent or session, and in `total`."""
        _among("by", [by], KEYS)
        found = sums.usage(self._store, by, self._zone, self._filters(scope))
        if by == "session":
            sums.named(self._store, found.lines)
        return found

    def tools(self, **scope: Unpack[Scope]) -> list[ToolSums]:
        """How each tool fared, the most used first. Calls are not counted by model."""
        if scope.get("model") is not None:
            raise StenoError("model: calls are not counted by model; leave it out")
        return tools.tool_sums(self._store, self._filters(scope))[0]

    # -- what stands in it -----------------------------------------------------------------------------------------

    def search(
        self, text: str, *, regex: bool = False, role: str | None = None, limit: int | None = None, **scope: Unpack[Scope]
    ) -> list[Hit]:
        """Texts that have all these words ("a phrase" in double quotes), the newest first. `role`: "prompt" or "answer"."""
        _among("role", [role] if role is not None else [], ("prompt", "answer"))
        found, _ = search.search(self._store, search.wanted(text, regex), self._filters(scope), role, _limit(limit))
        return found

    def sql(self, question: str) -> list[dict[str, Any]]:
        """The rows that one SELECT answers. It can only read."""
        store = open_ledger(self._where, only_read=True)
        try:
            names, rows = sql.ask(store, question)
        finally:
            store.close()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def note(self, id_: str, text: str) -> None:
        """Write something down beside a run or a session."""
        runs.add_note(self._store, *runs.found(self._store, id_), _now(), text)

    def _filters(self, scope: Scope) -> Filters:
        unknown = [name for name in scope if name not in Scope.__annotations__]
        if unknown:
            raise TypeError(f"a question has no {unknown[0]!r}; it may have: {', '.join(Scope.__annotations__)}")
        time_span = span(self._zone, _now(), _time(scope.get("since")), _time(scope.get("until")), scope.get("last"))
        project = scope.get("project")
        project = None if project is None else os.fspath(project)
        return filtered(self._store, time_span, project, scope.get("model"), scope.get("agent"))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _time(given: str | datetime | None) -> str | None:
    return given.isoformat() if isinstance(given, datetime) else given


def _limit(limit: int | None) -> int | None:
    if limit is not None and limit < 0:
        raise StenoError(f"limit {limit}: expected a number from 0 on, or None for all")
    return limit


def _among(name: str, words: Sequence[str], known: Sequence[str] | dict[str, Any]) -> None:
    for word in words:
        if word not in known:
            raise StenoError(f"{name} {word!r}: expected one of {', '.join(known)}")
