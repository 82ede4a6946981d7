"""Write runs and tasks to the ledger. Writing a run twice changes nothing."""

import zlib
from typing import Any

import msgspec
from msgspec import Struct

from ..analysis.redact_report import redacted_values
from ..analysis.usage import base_model_name
from ..codec.redact import redact
from ..report import LineCounts, Report, RunOrigin
from .protocol import Store, placeholders, query_column, query_value
from .queries.runs import load_session_report
from .reconcile import (
    KNOWN_TOTAL_SOURCES,
    TOKEN_COLUMNS,
    adopt_requests,
    assign_requests,
    put_adjustment,
    stored_requests,
    subtract_earlier_runs,
    usd_to_nano,
)
from .row_sink import MAX_TITLE_CHARS
from .rows import (
    MAX_INT64,
    MAX_TIME_MS,
    ParsedSession,
    RequestRow,
    RowBatch,
    pruned_id,
    time_ms,
)
from .upsert import RequestPricer, UpsertCounts, priced_row, upsert_batches

RUN_COLUMNS = (
    "id",
    "session",
    "task",
    "attempt",
    "why",
    "agent",
    "agent_version",
    "model",
    "project",
    "source",
    "started_at",
    "ended_at",
    "duration_ms",
    "verdict",
    "ok",
    "succeeded",
    "complete",
    "error",
    "error_category",
    "exit_code",
    "signal",
    "turns",
    "requests",
    "input",
    "cache_write",
    "cache_read",
    "output",
    "reasoning",
    "cost_nano",
    "cost_source",
    "session_nano",
    "context_used",
    "context_limit",
    "context_peak",
    "tools",
    "tool_errors",
    "files",
    "denials",
    "unknown",
    "prompt",
    "pid",
    "report",
    "name",
    "tags",
    "host",
    "user_name",
    "repository",
    "branch",
    "commit_id",
    "pull_request",
)


class StoredLines(Struct):
    """The part of a stored report that says how much was read."""

    lines: LineCounts = msgspec.field(default_factory=LineCounts)


# A later reading of the same recording doesn't know these.
TASK_RUN_COLUMNS = ("task", "attempt", "why", "prompt")
TASK_COLUMNS = ("id", "agent", "project", "prompt", "started_at", "ended_at", "verdict", "attempts")
ADD_ATTEMPTS = (
    "ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at, "
    "verdict = excluded.verdict, attempts = excluded.attempts "
    "WHERE tasks.attempts < excluded.attempts"
)


# -- runs ----------------------------------------------------------------------------------------


def upsert_run(
    store: Store,
    report: Report,
    batch: RowBatch,
    at: int,
    pricer: RequestPricer,
    **columns: Any,
) -> UpsertCounts:
    """Write a run, replacing what was written of it before; `report.run_id` must be set.

    `at` is the end of the run if its report has no time. `columns` are columns of `runs` that a
    report doesn't know: task, attempt, why, prompt, pid. Pruned runs, and runs whose requests were
    all pruned, stay pruned.
    """
    report = subtract_earlier_runs(store, report)
    run = report.run_id or ""
    session = report.session_id or run
    request_ids = {request.id for request in batch.requests}
    run_mark = pruned_id("runs", run)
    pruned = store.fetch_by_id("pruned", ("id",), [run_mark, *request_ids])
    if run_mark in pruned or (request_ids and request_ids <= pruned.keys()):
        return UpsertCounts()
    for parsed in batch.sessions.values():
        parsed.host = parsed.host or report.origin.host
        parsed.user_name = parsed.user_name or report.origin.user
        parsed.repository = parsed.repository or report.origin.repository
        parsed.branch = parsed.branch or report.origin.branch
    cost_source = report.cost.source if report.cost.source in KNOWN_TOTAL_SOURCES else None
    values = _run_values(report, batch, at, columns)
    _complete_session(report, batch, values)
    finished = "SELECT count(*) FROM runs WHERE id = ? AND verdict IS NOT NULL"
    is_new = not query_value(store, finished, (run,))
    _upsert_run_row(store, values, has_session=report.session_id is not None)
    counts = upsert_batches(store, [batch], pricer, cost_source=cost_source)
    counts.runs = int(is_new)

    # Pruned requests are already part of the sums. Without a total of the agent, the run's is our
    # sum of what the run itself shows: requests known from transcripts are added to it.
    requests = [
        RequestRow._make(priced_row(batch.agent, request, pricer, None))
        for request in batch.requests
        if cost_source is None or request.id in pruned
    ]
    if cost_source is not None:
        adopt_requests(store, run, session, cost_source)
        requests = [*stored_requests(store, run), *requests]
    put_adjustment(store, report, run, requests)

    _update_session(store, session)
    limit = values["context_limit"]
    if report.context.limit_source == "reported" and limit is not None:
        store.execute(
            "UPDATE sessions SET context_limit = ?, context_limit_source = 'reported' WHERE id = ?",
            (limit, session),
        )
    if report.cost.session_usd is not None:
        _update_later_runs(store, report)
    return counts


def _update_later_runs(store: Store, report: Report) -> None:
    """Subtract this run from later ones of its session whose figures include it."""
    later = query_column(
        store,
        "SELECT id FROM runs WHERE session = ? AND session_nano > ? ORDER BY session_nano",
        (report.session_id, usd_to_nano(report.cost.session_usd)),
    )
    for run in later:
        reported = load_session_report(store, run)
        if reported is None:
            continue
        own_part = subtract_earlier_runs(store, reported)
        columns = _figure_columns(own_part, redacted_values(own_part))
        assignments = ", ".join(f"{name} = ?" for name in columns)
        store.execute(f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), run))
        if own_part.cost.source in KNOWN_TOTAL_SOURCES:
            assign_requests(store, stored_requests(store, run), run, own_part.cost.source)
        put_adjustment(store, own_part, run, stored_requests(store, run))


def _figure_columns(report: Report, stored_report: dict[str, Any]) -> dict[str, Any]:
    """The columns that depend on what is known of earlier runs of the session."""
    return {
        **{name: getattr(report.tokens, name) for name in (*TOKEN_COLUMNS, "reasoning")},
        "cost_nano": usd_to_nano(report.cost.usd),
        "cost_source": report.cost.source,
        "session_nano": usd_to_nano(report.cost.session_usd),
        "report": zlib.compress(msgspec.json.encode(stored_report), 1),
    }


def has_fuller_report(store: Store, report: Report) -> bool:
    """Whether the ledger has more of this run than a truncated recording of it."""
    rows = store.query("SELECT report FROM runs WHERE id = ?", (report.run_id,))
    if not rows or rows[0][0] is None:
        return False
    stored = msgspec.json.decode(zlib.decompress(rows[0][0]), type=StoredLines).lines
    return (stored.read, not stored.torn) > (report.lines.read, not report.lines.torn)


def _complete_session(report: Report, batch: RowBatch, values: dict[str, Any]) -> None:
    """Add what only the report knows of the session: a result alone has no other events.

    A run that did nothing may name a session that doesn't exist.
    """
    id_ = report.session_id or report.run_id or ""
    session = batch.sessions.get(id_)
    if session is None:
        if not (report.turns or report.tokens.total):
            return
        session = batch.sessions[id_] = ParsedSession()
    session.agent_version = session.agent_version or values["agent_version"]
    session.project = session.project or report.cwd
    session.model = session.model or (values["model"] and base_model_name(values["model"]))
    if report.started_at is not None or session.first_at is None:
        session.first_at = min(values["started_at"], session.first_at or values["started_at"])
        session.last_at = max(values["ended_at"], session.last_at or 0)
    if session.context_used is None:
        session.context_used = values["context_used"]
        session.context_peak = session.context_peak or values["context_peak"]
        if report.context.source == "upper_bound":
            session.context_source = report.context.source
    if report.context.limit_source != "assumed":
        session.context_limit = values["context_limit"]
        is_reported = report.context.limit_source == "reported"
        session.context_limit_source = "reported" if is_reported else None


def _update_session(store: Store, session: str) -> None:
    """Set what a session gets from all its runs: its turns and, without a transcript, its title."""
    turns = "SELECT sum(turns) FROM runs WHERE session = ?"
    # The prompt of a run may be steno's own, such as for a summary: that of the task is the user's.
    title = (
        f"SELECT substr(coalesce(tasks.prompt, runs.prompt), 1, {MAX_TITLE_CHARS}) FROM runs "
        "LEFT JOIN tasks ON tasks.id = runs.task "
        "WHERE session = ? AND runs.prompt IS NOT NULL ORDER BY runs.started_at LIMIT 1"
    )
    store.execute(
        f"UPDATE sessions SET turns = ({turns}), title = coalesce(title, ({title})) WHERE id = ?",
        (session, session, session),
    )


def _run_times(report: Report, batch: RowBatch, at: int) -> tuple[int, int]:
    """Return start and end of a run; without a valid start time in the report, it ended `at`."""
    event_times = [
        *(session.last_at or 0 for session in batch.sessions.values()),
        *(request.at for request in batch.requests),
        *(call.at for call in batch.calls),
    ]
    last_event_at = max(event_times, default=0)
    started_at = time_ms(report.started_at)
    if started_at is None:
        ended_at = at
        duration = report.duration_ms or 0
        started_at = at - duration if 0 <= duration <= at else at
    else:
        ended_at = max(started_at + (report.duration_ms or 0), last_event_at)
    if not 0 <= ended_at < MAX_TIME_MS:
        ended_at = max(started_at, last_event_at)
    return started_at, ended_at


def _run_values(
    report: Report, batch: RowBatch, at: int, columns: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of the columns; an integer that no column can store becomes None."""
    started_at, ended_at = _run_times(report, batch, at)
    stored_report = redacted_values(report)
    counted = ("tools", "files", "denials")  # lists in the report, counts in the table
    same_name = [name for name in RUN_COLUMNS if hasattr(report, name) and name not in counted]
    values = {
        **{name: getattr(report, name) for name in same_name},
        **_figure_columns(report, stored_report),
        "id": report.run_id or "",
        "session": report.session_id or report.run_id or "",
        "model": report.model and redact(report.model),
        "agent_version": report.agent_version and redact(report.agent_version),
        "project": report.cwd,
        "started_at": started_at,
        "ended_at": ended_at,
        "error": stored_report["error"],
        "context_used": report.context.used,
        "context_limit": report.context.limit,
        "context_peak": report.context.peak,
        "tools": len(report.tools),
        "tool_errors": sum(count.errors for count in report.tool_counts.values()),
        "files": len(report.files),
        "denials": len(report.denials),
        "unknown": report.lines.unknown,
        "name": report.name and redact(report.name),
        "tags": encode_tags(stored_report["tags"]),
        **origin_columns(report.origin),
        **columns,
    }
    for name, value in values.items():
        if isinstance(value, int):
            values[name] = int(value) if -MAX_INT64 <= value <= MAX_INT64 else None
    return values


def origin_columns(origin: RunOrigin) -> dict[str, str | None]:
    """The columns of `runs` about the origin. `user` and `commit` are reserved words of SQL."""
    return {
        "host": origin.host,
        "user_name": origin.user,
        "repository": origin.repository,
        "branch": origin.branch,
        "commit_id": origin.commit,
        "pull_request": origin.pull_request,
    }


def encode_tags(tags: dict[str, str]) -> str | None:
    """The column `tags`: sorted, so that equal tags are equal text."""
    return msgspec.json.encode(tags, order="sorted").decode() if tags else None


def _upsert_run_row(store: Store, values: dict[str, Any], has_session: bool) -> None:
    updates = {name: f"excluded.{name}" for name in RUN_COLUMNS if name != "id"}
    for name in TASK_RUN_COLUMNS:
        updates[name] = f"coalesce(excluded.{name}, runs.{name})"
    if not has_session:
        # The agent printed no session; the one it was started with can still be resumed.
        updates["session"] = "coalesce(runs.session, excluded.session)"
    assignments = ", ".join(f"{name} = {value}" for name, value in updates.items())
    row = tuple(values.get(name) for name in RUN_COLUMNS)
    store.upsert("runs", RUN_COLUMNS, [row], f"ON CONFLICT (id) DO UPDATE SET {assignments}")


# -- the course of a task ------------------------------------------------------------------------


def insert_task(
    store: Store, *, id_: str, agent: str, project: str | None, prompt: str, started_at: int
) -> None:
    """Write the row of a task that starts; one that was begun before is continued."""
    store.execute(
        "INSERT INTO tasks (id, agent, project, prompt, started_at, attempts) "
        "VALUES (?, ?, ?, ?, ?, 0) "
        "ON CONFLICT (id) DO UPDATE SET verdict = NULL, ended_at = NULL",
        (id_, agent, project, prompt, started_at),
    )


def insert_active_run(
    store: Store,
    *,
    id_: str,
    session: str | None,
    task: str,
    attempt: int | None,
    agent: str,
    project: str | None,
    source: str,
    started_at: int,
    prompt: str,
    **columns: str | None,
) -> None:
    """Write the row of a run that has just started: it has no verdict yet.

    `columns` are its labels and origin.
    """
    names = "".join(f"{name}, " for name in columns)
    store.execute(
        "INSERT INTO runs (id, session, task, attempt, agent, project, source, started_at, prompt, "
        f"{names}"
        "ok, succeeded, complete, cost_source, tools, tool_errors, files, denials, unknown) "
        f"VALUES ({placeholders(9 + len(columns))}, 0, 0, 0, 'unknown', 0, 0, 0, 0, 0)",
        (
            *(id_, session, task, attempt, agent, project, source, started_at, prompt),
            *columns.values(),
        ),
    )


def mark_session_refreshed(store: Store, session: str | None) -> None:
    """Record that a session was handed over to a new one."""
    store.execute("UPDATE sessions SET stop = 'refreshed' WHERE id = ?", (session,))


def finish_task(store: Store, task: str, verdict: str, attempts: int, ended_at: int) -> None:
    """Finish a task after its last attempt; one that was started again had others before."""
    runs = query_value(store, "SELECT count(*) FROM runs WHERE task = ?", (task,))
    store.execute(
        "UPDATE tasks SET verdict = ?, attempts = ?, ended_at = ? WHERE id = ?",
        (verdict, max(attempts, runs), ended_at, task),
    )


def finish_lost_task(store: Store, task: str, verdict: str | None) -> None:
    """Finish a task whose steno was killed, at the end of its last run."""
    store.execute(
        "UPDATE tasks SET verdict = ?, "
        "attempts = (SELECT count(*) FROM runs WHERE task = ?), "
        "ended_at = (SELECT max(ended_at) FROM runs WHERE task = ?) "
        "WHERE id = ? AND verdict IS NULL",
        (verdict, task, task, task),
    )


def upsert_task(store: Store, task: str | int | None) -> None:
    """Write the row of a task that is known from its recordings only."""
    runs = store.query(
        "SELECT agent, project, prompt, started_at, ended_at, verdict "
        "FROM runs WHERE task = ? ORDER BY started_at, attempt",
        (task,),
    )
    if not runs:
        return
    agent, project, prompt, started_at, _, _ = runs[0]
    *_, ended_at, verdict = runs[-1]
    row = (task, agent, project, prompt, started_at, ended_at, verdict, len(runs))
    store.upsert("tasks", TASK_COLUMNS, [row], ADD_ATTEMPTS)
