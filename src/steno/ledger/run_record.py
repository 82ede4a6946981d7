"""A run into the ledger: its requests and calls, its report, the agent's own account. Booking it twice changes nothing."""

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from ..analysis.accumulator import MAX_TOOL_ERROR_CHARS
from ..analysis.verdict import TRUNCATION_SUFFIX
from ..codec.redact import redact, redact_truncated, redact_value
from ..report import Report
from .reconcile import (
    KNOWN_TOTAL_SOURCES,
    TOKEN_COLUMNS,
    adopt_requests,
    put_adjustment,
    reconcile,
    request_row,
    usd_to_nano,
)
from .rows import MAX_INT64, ParsedRequest, RowBatch, is_valid_time, pruned_id
from .store import Store
from .upsert import CostAndSaving, UpsertCounts, upsert_batches

RUN_COLUMNS = (
    "id", "session", "task", "attempt", "why", "agent", "agent_version", "model", "project", "source", "started_at",
    "ended_at", "duration_ms", "verdict", "ok", "succeeded", "complete", "error", "error_category", "exit_code",
    "signal", "turns", "requests", "input", "cache_write", "cache_read", "output", "reasoning", "cost_nano",
    "cost_source", "session_nano", "context_used", "context_limit", "context_peak", "tools", "tool_errors", "files",
    "denials", "unknown", "prompt", "pid", "report",
)  # fmt: skip
TASK_COLUMNS = ("id", "agent", "project", "prompt", "started_at", "ended_at", "verdict", "attempts")


def upsert_run(
    store: Store,
    report: Report,
    batch: RowBatch,
    at: int,
    priced: Callable[[ParsedRequest], CostAndSaving],
    **more: Any,
) -> UpsertCounts:
    """Book a run whose `report.run_id` is set, replacing what was booked of it before; what of it is new.

    `at` is the time of the run where its report knows none. `more` are columns of `runs` that a report does not know:
    task, attempt, why, prompt, pid. A run that was pruned stays so, and so does one whose requests all were.
    """
    own = {request.id for request in batch.requests}
    pruned = store.fetch_by_id("pruned", ("id",), [pruned_id("runs", report.run_id or ""), *own])
    if len(pruned) > len(own & pruned.keys()) or (own and own <= pruned.keys()):
        return UpsertCounts()
    run, session = report.run_id or "", report.session_id or report.run_id or ""
    account = report.cost.source if report.cost.source in KNOWN_TOTAL_SOURCES else None
    booked = upsert_batches(store, [batch], priced, cost_source=account)
    _upsert_run_row(store, report, run, session, at, _last_event_time(batch), more)
    if account is not None:
        adopt_requests(store, run, session, batch.agent, account)
        gone = [
            request for request in batch.requests if request.id in pruned
        ]  # the sums have these already
        reconcile(
            store, [run], [request_row(batch.agent, one, *priced(one), account) for one in gone]
        )
    else:  # a sum of ours, of what the run itself shows: what a transcript knows better comes on top
        put_adjustment(
            store,
            report,
            run,
            [request_row(batch.agent, own, *priced(own), "computed") for own in batch.requests],
        )
    turns = "SELECT sum(turns) FROM runs WHERE session = ?"
    store.execute(f"UPDATE sessions SET turns = ({turns}) WHERE id = ?", (session, session))
    limit = (
        _column_value(report.context.limit) if report.context.limit_source == "reported" else None
    )
    if limit is not None:
        store.execute("UPDATE sessions SET context_limit = ? WHERE id = ?", (limit, session))
    return booked


# -- the run -----------------------------------------------------------------------------------------------------


def _last_event_time(batch: RowBatch) -> int:
    """The time of the last thing that a run's own lines tell of."""
    ends = [session.last_at or 0 for session in batch.sessions.values()]
    return max(
        [*ends, *(request.at for request in batch.requests), *(row[10] for row in batch.calls)],
        default=0,
    )


def _upsert_run_row(
    store: Store, report: Report, run: str, session: str, at: int, last: int, more: dict[str, Any]
) -> None:
    began = at if report.started_at is None else int(report.started_at.timestamp() * 1000)
    known = report.started_at is not None and is_valid_time(began)
    began = began if known else at
    ended = max(began + (report.duration_ms or 0), last) if known else began
    ended = ended if is_valid_time(ended) else max(began, last)
    context, tokens = report.context, report.tokens
    values: dict[str, Any] = {
        **{
            name: getattr(report, name)
            for name in RUN_COLUMNS
            if hasattr(report, name) and name not in ("tools", "files", "denials")
        },
        **{name: getattr(tokens, name) for name in (*TOKEN_COLUMNS, "reasoning")},
        "id": run,
        "session": session,
        "project": report.cwd,
        "started_at": began,
        "ended_at": ended,
        "error": _redact_error(report.error),
        "cost_nano": usd_to_nano(report.cost.usd),
        "cost_source": report.cost.source,
        "session_nano": usd_to_nano(report.cost.session_usd),
        "context_used": context.used,
        "context_limit": context.limit,
        "context_peak": context.peak,
        "tools": len(report.tools),
        "tool_errors": sum(count.errors for count in report.tool_counts.values()),
        "files": len(report.files),
        "denials": len(report.denials),
        "unknown": report.lines.unknown,
        "report": zlib.compress(msgspec.json.encode(_redact_report(report)), 1),
        **more,
    }
    values |= {
        name: redact(values[name])
        for name in ("model", "agent_version")
        if values[name] is not None
    }
    row = tuple(_column_value(values.get(name)) for name in RUN_COLUMNS)
    parts = [f"{name} = {_merge_sql(name, report)}" for name in RUN_COLUMNS[1:]]
    store.upsert("runs", RUN_COLUMNS, [row], f"ON CONFLICT (id) DO UPDATE SET {', '.join(parts)}")


def _redact_report(report: Report) -> dict[str, Any]:
    """A report without secrets, nor the beginnings of some where a text was cut."""
    told: dict[str, Any] = redact_value(msgspec.to_builtins(report))
    told["error"] = _redact_error(report.error)
    for tool, row in zip(report.tools, told["tools"], strict=True):
        if tool.error is not None and len(tool.error) >= MAX_TOOL_ERROR_CHARS:
            row["error"] = redact_truncated(tool.error)
    return told


def _redact_error(error: str | None) -> str | None:
    """An error text without secrets; of one that was cut, what may be the beginning of a secret goes too."""
    if error is None or not error.endswith(TRUNCATION_SUFFIX):
        return error and redact(error)
    return redact_truncated(error.removesuffix(TRUNCATION_SUFFIX)) + TRUNCATION_SUFFIX


def _merge_sql(name: str, report: Report) -> str:
    """What becomes of a column that is there already."""
    if name in (
        "task",
        "attempt",
        "why",
        "prompt",
    ):  # a later reading of the same tape does not know these
        return f"coalesce(excluded.{name}, runs.{name})"
    if (
        name == "session" and report.session_id is None
    ):  # it said nothing: what it was asked for can still be gone on with
        return "coalesce(runs.session, excluded.session)"
    return f"excluded.{name}"


def upsert_task(store: Store, task: str | int | None) -> None:
    """The row of a task that is known by its runs alone, or by more of them than before."""
    runs = store.query(
        "SELECT agent, project, prompt, started_at, ended_at, verdict FROM runs WHERE task = ? ORDER BY attempt",
        (task,),
    )
    if runs:
        first, last = runs[0], runs[-1]
        row = (task, *first[:4], last[4], last[5], len(runs))
        grown = (
            "ended_at = excluded.ended_at, verdict = excluded.verdict, attempts = excluded.attempts"
        )
        clash = f"ON CONFLICT (id) DO UPDATE SET {grown} WHERE tasks.attempts < excluded.attempts"
        store.upsert("tasks", TASK_COLUMNS, [row], clash)


def _column_value(value: Any) -> Any:
    """A value as a column takes it. A number that none holds is damage: unknown (I6)."""
    if isinstance(value, int):
        return int(value) if -MAX_INT64 <= value <= MAX_INT64 else None
    return value
