"""A run into the ledger: its requests and calls, its report, the agent's own account. Booking it twice changes nothing."""

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from ..redact import redact, redact_all
from ..report import Report
from .book import Booked, Priced, book
from .settle import ACCOUNTS, COUNTERS, adopt, nano, put_rest, request_row, settle
from .store import Store
from .values import Batch, Request, mark

RUN = (
    "id", "session", "task", "attempt", "why", "agent", "agent_version", "model", "project", "source", "started_at",
    "ended_at", "duration_ms", "verdict", "ok", "succeeded", "complete", "error", "error_category", "exit_code",
    "signal", "turns", "requests", "input", "cache_write", "cache_read", "output", "reasoning", "cost_nano",
    "cost_source", "session_nano", "context_used", "context_limit", "context_peak", "tools", "tool_errors", "files",
    "denials", "unknown", "prompt", "pid", "report",
)  # fmt: skip
TASK = ("id", "agent", "project", "prompt", "started_at", "ended_at", "verdict", "attempts")
ERROR = 4096  # characters of an error text (V3)


def record(store: Store, report: Report, batch: Batch, at: int, priced: Callable[[Request], Priced], **more: Any) -> Booked:
    """Book a run whose `report.run_id` is set, replacing what was booked of it before; what of it is new.

    `at` is the time of the run where its report knows none. `more` are columns of `runs` that a report does not know:
    task, attempt, why, prompt, pid. A run that was pruned stays so.
    """
    if store.known("pruned", ("id",), [mark("runs", report.run_id or "")]):
        return Booked()
    run, session = report.run_id or "", report.session_id or report.run_id or ""
    account = report.cost.source if report.cost.source in ACCOUNTS else None
    booked = book(store, [batch], priced, account=account)
    _book_run(store, report, run, session, at, _last(batch), more)
    if account is not None:
        adopt(store, run, session, batch.agent, account)
        settle(store, [run])
    else:  # a sum of ours, of what the run itself shows: what a transcript knows better comes on top
        put_rest(store, report, run, [request_row(batch.agent, own, *priced(own), "computed") for own in batch.requests])
    turns = "SELECT sum(turns) FROM runs WHERE session = ?"
    store.change(f"UPDATE sessions SET turns = ({turns}) WHERE id = ?", (session, session))  # noqa: S608
    limit = report.context.limit if report.context.limit_source == "reported" else None
    if limit is not None:
        store.change("UPDATE sessions SET context_limit = ? WHERE id = ?", (limit, session))
    return booked


# -- the run -----------------------------------------------------------------------------------------------------


def _last(batch: Batch) -> int:
    """The time of the last thing that a run's own lines tell of."""
    ends = [session.last_at or 0 for session in batch.sessions.values()]
    return max([*ends, *(request.at for request in batch.requests), *(row[10] for row in batch.calls)], default=0)


def _book_run(store: Store, report: Report, run: str, session: str, at: int, last: int, more: dict[str, Any]) -> None:
    began = at if report.started_at is None else int(report.started_at.timestamp() * 1000)
    ended = began if report.started_at is None else max(began + (report.duration_ms or 0), last)
    context, tokens = report.context, report.tokens
    values: dict[str, Any] = {
        **{name: getattr(report, name) for name in RUN if hasattr(report, name) and name not in ("tools", "files", "denials")},
        **{name: getattr(tokens, name) for name in (*COUNTERS, "reasoning")},
        "id": run,
        "session": session,
        "project": report.cwd,
        "started_at": began,
        "ended_at": ended,
        "error": redact(report.error[:ERROR]) if report.error else None,
        "cost_nano": nano(report.cost.usd),
        "cost_source": report.cost.source,
        "session_nano": nano(report.cost.session_usd),
        "context_used": context.used,
        "context_limit": context.limit,
        "context_peak": context.peak,
        "tools": len(report.tools),
        "tool_errors": sum(count.errors for count in report.tool_counts.values()),
        "files": len(report.files),
        "denials": len(report.denials),
        "unknown": report.lines.unknown,
        "report": zlib.compress(msgspec.json.encode(redact_all(msgspec.to_builtins(report))), 1),
        **more,
    }
    row = tuple(_plain(values.get(name)) for name in RUN)
    parts = [f"{name} = {_merged(name, report)}" for name in RUN[1:]]
    store.put("runs", RUN, [row], f"ON CONFLICT (id) DO UPDATE SET {', '.join(parts)}")


def _merged(name: str, report: Report) -> str:
    """What becomes of a column that is there already."""
    if name in ("task", "attempt", "why", "prompt"):  # a later reading of the same tape does not know these
        return f"coalesce(excluded.{name}, runs.{name})"
    if name == "session" and report.session_id is None:  # it said nothing: what it was asked for can still be gone on with
        return "coalesce(runs.session, excluded.session)"
    return f"excluded.{name}"


def record_task(store: Store, task: str | int | None) -> None:
    """The row of a task that is known by its runs alone, or by more of them than before."""
    runs = store.rows(
        "SELECT agent, project, prompt, started_at, ended_at, verdict FROM runs WHERE task = ? ORDER BY attempt", (task,)
    )
    if runs:
        first, last = runs[0], runs[-1]
        row = (task, *first[:4], last[4], last[5], len(runs))
        grown = "ended_at = excluded.ended_at, verdict = excluded.verdict, attempts = excluded.attempts"
        clash = f"ON CONFLICT (id) DO UPDATE SET {grown} WHERE tasks.attempts < excluded.attempts"
        store.put("tasks", TASK, [row], clash)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
