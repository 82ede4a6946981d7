"""Write runs and tasks to the ledger. Writing a run twice changes nothing."""

import zlib
from typing import Any

import msgspec
from msgspec import Struct

from ..analysis.redact_report import redacted_values
from ..analysis.usage import OVER_SESSION, base_model_name
from ..codec.redact import redact
from ..report import LineCounts, Report, RunOrigin
from .copies import call_identity, delete_calls
from .earlier_runs import subtract_earlier_runs
from .protocol import Store, placeholders, query_column, query_value
from .queries.runs import load_session_report
from .row_state import MAX_TITLE_CHARS
from .rows import (
    CALL_COLUMNS,
    MAX_INT64,
    MAX_TIME_MS,
    REQUEST_COLUMNS,
    ParsedSession,
    RequestRow,
    RowBatch,
    call_from_row,
    pruned_id,
    stable_id,
    time_ms,
)
from .settle import RequestPricer, usd_to_nano
from .totals import SpendDeltas, add_requests, upsert_spend
from .upsert import UpsertCounts, upsert_batches
from .witnesses import COUNTERS

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
    "identity",
    "first_request",
    "derived",
    "over_session",
)


class StoredLines(Struct):
    """The part of a stored report that says how much was read."""

    lines: LineCounts = msgspec.field(default_factory=LineCounts)


RUN_REFERENCES = (
    ("requests", "run"),
    ("requests", "shown"),
    *((table, "run") for table in ("calls", "changes", "denials", "texts", "session_totals")),
    ("sources", "run"),
)
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
    is_derived: bool = False,
    **columns: Any,
) -> UpsertCounts:
    """Write a run, replacing what was written of it before; `report.run_id` must be set.

    `is_derived`: the id was made from the contents of its file. Then another recording of the same
    process comes first.

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
    if len(pruned):
        mark = pruned_id("requests", run)  # the sums have a part of its requests
        store.upsert("pruned", ("id",), [(mark,)], "ON CONFLICT DO NOTHING")
    for total in batch.totals:
        total.run = run
        total.id = stable_id("total", run, total.session, total.cost_nano, total.models)
    columns |= {
        "identity": run_identity(report, batch.id_namespace),
        "first_request": first_request(batch),
        "derived": int(is_derived),
    }
    twin = _replace_twins(store, report, columns)
    if twin is not None:
        for request in batch.requests:
            request.run = twin
        batch.totals.clear()
        batch.sessions.clear()  # the other recording has said it
        return upsert_batches(store, [batch], pricer, {session: twin})
    for parsed in batch.sessions.values():
        parsed.host = parsed.host or report.origin.host
        parsed.user_name = parsed.user_name or report.origin.user
        parsed.repository = parsed.repository or report.origin.repository
        parsed.branch = parsed.branch or report.origin.branch
    values = _run_values(report, batch, at, columns)
    _complete_session(report, batch, values)
    finished = "SELECT count(*) FROM runs WHERE id = ? AND verdict IS NOT NULL"
    is_new = not query_value(store, finished, (run,))
    _upsert_run_row(store, values, has_session=report.session_id is not None)
    if report.cost.session_usd is not None:
        _update_later_runs(store, report)
    counts = upsert_batches(store, [batch], pricer, {session: run})
    counts.runs = int(is_new)
    _update_session(store, session)
    return counts


def run_identity(report: Report, id_namespace: str) -> str | None:
    """What two recordings of one process have in common: its result; None without one."""
    if not report.complete or not (report.tokens.total or report.cost.session_usd):
        return None
    total = report.cost.session_usd
    if total is None and report.cost.source == "reported":
        total = report.cost.usd
    is_complete = call_identity(report.agent or "") == "message"
    if total is None and (is_complete or report.duration_ms is None):
        total = report.tokens.total  # else not: a session file may complete it
    figures = (id_namespace, report.duration_ms, report.turns, total, report.result or report.text)
    work = (*(tool.id for tool in report.tools), *(file.path for file in report.files))
    if report.duration_ms is not None:
        work = ()  # another form of its output may leave it out
    return f"{stable_id('process', report.agent, report.session_id, *figures, *work):016x}"


def first_request(batch: RowBatch) -> int | None:
    """The same for recordings without a result, where the agent names its messages."""
    if not batch.requests or call_identity(batch.agent) != "message":
        return None
    return batch.requests[0].id


def _replace_twins(store: Store, report: Report, columns: dict[str, Any]) -> str | None:
    """Return the run that is another recording of this process, or delete it if this one is better.

    One with an id of its own is better, then the one with the smaller id.
    """
    run = report.run_id or ""
    sql = (
        "SELECT id, derived FROM runs WHERE session = ? AND id <> ? "
        "AND (identity = ? OR first_request = ?) ORDER BY derived, id"
    )
    session = report.session_id or run
    values = (session, run, columns["identity"], columns["first_request"])
    for twin, is_derived in store.query(sql, values):
        if columns["derived"] and (not is_derived or twin < run):
            _replace_run(store, run, twin)
            return str(twin)
        if is_derived:
            _replace_run(store, twin, run)
    return None


def _replace_run(store: Store, old: str, new: str) -> None:
    for table, column in RUN_REFERENCES:
        store.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))
    store.execute("DELETE FROM runs WHERE id = ?", (old,))


def delete_run(store: Store, run: str) -> None:
    """Delete a run and what only its recording shows, before that is read again."""
    rows = store.query(f"SELECT {', '.join(REQUEST_COLUMNS)} FROM requests WHERE run = ?", (run,))
    own = [row for row in map(RequestRow._make, rows) if row.shown == run or row.kind == "rest"]
    sessions = {row.session for row in own}
    projects = {
        id_: project or ""
        for id_, project in store.fetch_by_id("sessions", ("id", "project"), sessions).values()
    }
    for row in own:
        deltas: SpendDeltas = {}
        add_requests(deltas, [row], -1)
        upsert_spend(store, deltas, row.agent, projects)
        store.execute("DELETE FROM requests WHERE id = ?", (row.id,))
    calls = [
        call_from_row(row)
        for row in store.query(f"SELECT {', '.join(CALL_COLUMNS)} FROM calls WHERE run = ?", (run,))
    ]
    delete_calls(store, rows[0][1] if rows else "", calls, projects)
    for table in ("changes", "denials", "texts", "session_totals"):
        store.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    store.execute("DELETE FROM runs WHERE id = ?", (run,))
    store.execute(
        "DELETE FROM sessions WHERE id = ? "
        "AND NOT EXISTS (SELECT 1 FROM requests WHERE session = ?) "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE session = ?)",
        (run, run, run),
    )


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


def _figure_columns(report: Report, stored_report: dict[str, Any]) -> dict[str, Any]:
    """The columns that depend on what is known of earlier runs of the session."""
    return {
        **{name: getattr(report.tokens, name) for name in COUNTERS},
        "cost_nano": usd_to_nano(report.cost.usd),
        "cost_source": report.cost.source,
        "session_nano": usd_to_nano(report.cost.session_usd),
        "over_session": int(any(text in OVER_SESSION for text in report.warnings)),
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
    if report.started_at is not None and session.untimed:
        session.untimed = 0
        session.first_at = session.last_at = None  # those of the file
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
