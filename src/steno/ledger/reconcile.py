"""Reconcile the agent's own total of a run with the requests known of it.

The agent's total is authoritative for a run's cost. Requests keep their own time and price; the
difference to the total, per model, is one more row (kind `rest`). A request that only a transcript
shows, made while a run with a total was active in the same session, is part of that total: a
compaction, a helper, a subagent in the background.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..analysis.usage import base_model_name as plain_name
from ..codec.redact import redact
from ..event import NANO_PER_USD
from ..report import ModelSummary, Report
from .protocol import Store, chunks, placeholders, query_value
from .queries.runs import load_report
from .rows import MAX_INT64, REQUEST_COLUMNS, RequestRow, stable_id
from .totals import SpendDeltas, add_requests, replace_on_conflict, upsert_spend

TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output")
KNOWN_TOTAL_SOURCES = ("reported", "local")  # the agent's total; a local server, which is free
RUN_SLACK_MS = 5_000  # a request this close to a run is its own: runs start before their first line
_SELECT_REQUESTS = f"SELECT {', '.join(REQUEST_COLUMNS)} FROM requests"
_SELECT_PROJECT = "SELECT id, coalesce(project, '') FROM sessions WHERE id = ?"


class _ModelTotal(NamedTuple):
    """What the report says about one model."""

    usage: ModelSummary
    cost_nano: int | None


class RunInterval(NamedTuple):
    """When a run with a known total was active."""

    run: str
    started_at: int
    ended_at: int
    cost_source: str


def usd_to_nano(usd: float | None) -> int | None:
    """Return nano-dollars; None if unknown or too large for a column."""
    if usd is None or abs(usd) * NANO_PER_USD >= MAX_INT64:
        return None
    return round(usd * NANO_PER_USD)


# -- runs of requests ----------------------------------------------------------------------------


def load_run_intervals(store: Store, sessions: Iterable[str]) -> dict[str, list[RunInterval]]:
    """Return the runs with a known total of some sessions, by session."""
    intervals: dict[str, list[RunInterval]] = {}
    for part in chunks(list(sessions)):
        sql = (
            "SELECT session, id, started_at, ended_at, cost_source FROM runs "
            f"WHERE cost_source IN ({placeholders(len(KNOWN_TOTAL_SOURCES))}) "
            f"AND session IN ({placeholders(len(part))})"
        )
        for session, *fields in store.query(sql, (*KNOWN_TOTAL_SOURCES, *part)):
            intervals.setdefault(session, []).append(RunInterval(*fields))
    return intervals


def find_run_at(intervals: Iterable[RunInterval], at: int) -> RunInterval | None:
    """Return the run that was active at a time, else the nearest one within the slack."""
    distances = [
        (max(interval.started_at - at, at - interval.ended_at, 0), interval)
        for interval in intervals
    ]
    if not distances:
        return None
    distance, nearest = min(distances)
    return nearest if distance <= RUN_SLACK_MS else None


def adopt_requests(store: Store, run: str, session: str, agent: str, cost_source: str) -> None:
    """Assign requests of the session without a run to this run if it was active at their time."""
    sql = f"{_SELECT_REQUESTS} WHERE session = ? AND run IS NULL AND kind = 'request'"
    unassigned = [RequestRow._make(row) for row in store.query(sql, (session,))]
    if not unassigned:
        return
    intervals = load_run_intervals(store, [session]).get(session, [])
    found = [(row, find_run_at(intervals, row.at)) for row in unassigned]
    old = [row for row, interval in found if interval is not None and interval.run == run]
    if not old:
        return
    is_local = cost_source == "local"
    new = [
        row._replace(
            run=run,
            cost_nano=0 if is_local else row.cost_nano or 0,
            saved_nano=0 if is_local else row.saved_nano,
            source=cost_source,
        )
        for row in old
    ]
    deltas: SpendDeltas = {}
    add_requests(deltas, old, -1)
    add_requests(deltas, new)
    store.upsert("requests", REQUEST_COLUMNS, new, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, deltas, agent, dict(store.query(_SELECT_PROJECT, (session,))))


# -- adjustments ---------------------------------------------------------------------------------


def reconcile(store: Store, run: str) -> None:
    """Write the adjustment of a run that was written before, against its stored requests."""
    report = load_report(store, run)
    if report is not None:
        put_adjustment(store, report, run, stored_requests(store, run))


def stored_requests(store: Store, run: str) -> list[RequestRow]:
    sql = f"{_SELECT_REQUESTS} WHERE run = ? AND kind = 'request'"
    return [RequestRow._make(row) for row in store.query(sql, (run,))]


def put_adjustment(store: Store, report: Report, run: str, requests: Iterable[RequestRow]) -> None:
    """Write the difference between a report and these requests, per model."""
    by_model: dict[str, list[RequestRow]] = {}
    for request in requests:
        by_model.setdefault(request.model, []).append(request)
    at = query_value(store, "SELECT ended_at FROM runs WHERE id = ?", (run,))
    rows = [
        _adjustment_row(report, run, model, total, by_model.get(model, []), at)
        for model, total in _totals_by_model(report, by_model).items()
    ]
    existing = store.fetch_by_id("requests", REQUEST_COLUMNS, [row.id for row in rows])
    rows = [
        row
        for row in rows
        if row.id in existing
        or any((row.input, row.cache_write, row.cache_read, row.output, row.cost_nano))
    ]
    if not rows:
        return
    deltas: SpendDeltas = {}
    add_requests(deltas, existing.values(), -1)
    add_requests(deltas, rows)
    store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    projects: dict[str, str] = dict(store.query(_SELECT_PROJECT, (rows[0].session,)))
    upsert_spend(store, deltas, report.agent or "unknown", projects)


def _totals_by_model(
    report: Report, by_model: dict[str, list[RequestRow]]
) -> dict[str, _ModelTotal]:
    total = usd_to_nano(report.cost.usd)
    costs = [usd_to_nano(model.cost_usd) for model in report.models.values()]
    is_split = bool(costs) and None not in costs and sum(cost or 0 for cost in costs) == total
    totals = {
        plain_name(redact(name)): _ModelTotal(model, cost if is_split else None)
        for (name, model), cost in zip(report.models.items(), costs, strict=True)
    }
    if len(totals) == 1 and len(by_model) == 1:
        # One model: the service may call it differently than the request did.
        totals = dict(zip(by_model, totals.values(), strict=True))
    if is_split:
        return totals
    main = plain_name(redact(report.model or next(iter(by_model), "unknown")))
    if totals and main not in totals:
        main = next(iter(totals))
    if main in totals:
        usage = totals[main].usage
    else:
        tokens = report.tokens
        usage = ModelSummary(tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
    if total is not None:
        # Only the sum is known: the main model gets what the prices of the others don't explain.
        others = sum(
            row.cost_nano or 0 for name, rows in by_model.items() if name != main for row in rows
        )
        totals[main] = _ModelTotal(usage, total - others)
    elif not totals:
        totals[main] = _ModelTotal(usage, None)
    return totals


def _adjustment_row(
    report: Report,
    run: str,
    model: str,
    total: _ModelTotal,
    rows: list[RequestRow],
    at: int,
) -> RequestRow:
    counters = {}
    for name in TOKEN_COLUMNS:
        reported = getattr(total.usage, name)
        known = sum(getattr(row, name) for row in rows)
        counters[name] = 0 if reported is None else reported - known
    cost = None
    if total.cost_nano is not None:
        cost = total.cost_nano - sum(row.cost_nano or 0 for row in rows)
    elif not any(counters.values()):
        cost = 0
    source = report.cost.source if report.cost.source != "unknown" else "computed"
    if cost is None:
        source = "unknown"
    return RequestRow(
        id=stable_id("rest", run, model),
        agent=report.agent or "unknown",
        session=report.session_id or run,
        run=run,
        kind="rest",
        message=None,
        parent=None,
        model=model,
        at=at,
        reasoning=0,
        cache_write_1h=0,
        cost_nano=cost,
        saved_nano=0,
        source=source,
        **counters,
    )
