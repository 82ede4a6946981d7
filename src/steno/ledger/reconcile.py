"""Reconcile the agent's own total of a run with the requests known of it.

The agent's total is authoritative for a run's tokens and cost. Requests keep their own time and
price; the difference to the total, per model, is one more row (kind `rest`). A request that only a
transcript shows, made while a run with a total was active in the same session, is part of that
total: a compaction, a helper, a subagent in the background.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs
from msgspec.structs import replace

from ..analysis.usage import (
    EARLIER_RUNS_LOWER_BOUND,
    EARLIER_RUNS_UPPER_BOUND,
    add_optional,
    cache_hit_rate,
    nano_to_usd,
    sum_optional,
    sum_tokens,
)
from ..analysis.usage import base_model_name as plain_name
from ..codec.redact import redact
from ..event import ModelUsage
from ..pricing import cache_saving, rates
from ..report import Cost, ModelSummary, Report
from ..units import NANO_PER_USD
from .protocol import Store, chunks, placeholders, query_value
from .queries.runs import SessionFigures, StoredReport, load_report
from .rows import MAX_INT64, REQUEST_COLUMNS, RequestRow, stable_id, utc_datetime
from .totals import SpendDeltas, add_requests, replace_on_conflict, upsert_spend

TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output")
_token_counters = attrgetter(*TOKEN_COLUMNS)
COUNTERS = (*TOKEN_COLUMNS, "reasoning")
KNOWN_TOTAL_SOURCES = ("reported", "local")  # the agent's total; a local server, which is free
RUN_SLACK_MS = 5_000  # a request this close to a run is its own: runs start before their first line
EARLIER_RUNS_BOUNDS = (EARLIER_RUNS_LOWER_BOUND, EARLIER_RUNS_UPPER_BOUND)
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


def load_run_intervals(
    store: Store, sessions: Iterable[str], with_total: bool = True
) -> dict[str, list[RunInterval]]:
    """Return the finished runs of some sessions, by session; `with_total`: those with a total."""
    intervals: dict[str, list[RunInterval]] = {}
    for part in chunks(list(sessions)):
        sql = (
            "SELECT session, id, started_at, ended_at, cost_source FROM runs "
            f"WHERE session IN ({placeholders(len(part))}) "
            "AND started_at IS NOT NULL AND ended_at IS NOT NULL"
        )
        for session, *fields in store.query(sql, part):
            interval = RunInterval(*fields)
            if not with_total or interval.cost_source in KNOWN_TOTAL_SOURCES:
                intervals.setdefault(session, []).append(interval)
    return intervals


def find_run_at(
    intervals: Iterable[RunInterval], at: int, slack_ms: int = RUN_SLACK_MS
) -> RunInterval | None:
    """Return the run that was active at a time, else the nearest one within the slack."""
    distances = [
        (max(interval.started_at - at, at - interval.ended_at, 0), interval)
        for interval in intervals
    ]
    if not distances:
        return None
    distance, nearest = min(distances)
    return nearest if distance <= slack_ms else None


def adopt_requests(store: Store, run: str, session: str, cost_source: str) -> None:
    """Assign requests of the session without a run to this run if it was active at their time."""
    sql = f"{_SELECT_REQUESTS} WHERE session = ? AND run IS NULL AND kind = 'request'"
    unassigned = [RequestRow._make(row) for row in store.query(sql, (session,))]
    if not unassigned:
        return
    intervals = load_run_intervals(store, [session]).get(session, [])
    found = [(row, find_run_at(intervals, row.at)) for row in unassigned]
    old = [row for row, interval in found if interval is not None and interval.run == run]
    assign_requests(store, old, run, cost_source)


def assign_requests(store: Store, old: list[RequestRow], run: str, cost_source: str) -> None:
    """Make requests of one session a part of a run whose total is known."""
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
    projects: dict[str, str] = dict(store.query(_SELECT_PROJECT, (old[0].session,)))
    upsert_spend(store, deltas, old[0].agent, projects)


# -- totals of a session -------------------------------------------------------------------------


class _EarlierRun(NamedTuple):
    """A run of the same session: its own cost, and the session's total at its end."""

    id: str
    cost_nano: int | None
    session_nano: int


def subtract_earlier_runs(store: Store, report: Report) -> Report:
    """Reduce a report that may include earlier runs of its session to the run's own part.

    The agent's total at the end of the run before it is known from the ledger. Without one, the
    report stays as it is, with its warning.
    """
    if report.cost.session_usd is None or not {*EARLIER_RUNS_BOUNDS} & {*report.warnings}:
        return report
    figures = {name: getattr(report, name) for name in SessionFigures.__struct_fields__}
    own_part = structs.asdict(_own_part(store, report))
    return StoredReport(**own_part, session_figures=SessionFigures(**figures))


def _own_part(store: Store, report: Report) -> Report:
    total = usd_to_nano(report.cost.session_usd) or 0
    is_lower_bound = EARLIER_RUNS_LOWER_BOUND in report.warnings
    at_least = (usd_to_nano(report.cost.usd) or 0) if is_lower_bound else 0
    sql = (
        "SELECT id, cost_nano, session_nano FROM runs "
        "WHERE session = ? AND id <> ? AND session_nano < ? ORDER BY session_nano DESC"
    )
    values = (report.session_id, report.run_id, total - at_least)
    earlier = [_EarlierRun(*row) for row in store.query(sql, values)]
    if not earlier:
        return report
    latest = earlier[0].session_nano
    cost = Cost(nano_to_usd(total - latest), "reported", report.cost.session_usd)
    warnings = [text for text in report.warnings if text not in EARLIER_RUNS_BOUNDS]
    if is_lower_bound:
        warnings.append("output tokens are a lower bound: those of subagents are not reported")
        models = {name: replace(model, cost_usd=None) for name, model in report.models.items()}
        return replace(report, cost=cost, models=models, warnings=warnings)
    # Each of these runs is known, and no other: their parts add up to the total after the last.
    is_complete = sum(run.cost_nano or 0 for run in earlier) == latest
    models = _subtract_models(store, report, earlier) if is_complete else {}
    tokens = sum_tokens(ModelUsage(*_token_counters(model)) for model in models.values())
    if not models:
        warnings.append("tokens are unknown: those of earlier runs of this session are unknown")
    return replace(
        report,
        cost=cost,
        models=models,
        tokens=tokens,
        cache_hit_rate=cache_hit_rate(tokens),
        warnings=warnings,
    )


def _subtract_models(
    store: Store, report: Report, earlier: list[_EarlierRun]
) -> dict[str, ModelSummary]:
    """The figures per model without those of the earlier runs; empty if one is unknown."""
    models = dict(report.models)
    for run in earlier:
        known = load_report(store, run.id)
        if known is None or (known.cost.usd and not known.models):
            return {}
        for name, part in known.models.items():
            if name not in models:
                return {}
            pairs = zip(_token_counters(models[name]), _token_counters(part), strict=True)
            rest = [total - own for total, own in pairs if total is not None and own is not None]
            if len(rest) < len(TOKEN_COLUMNS) or min(rest) < 0:
                return {}
            counters = dict(zip(TOKEN_COLUMNS, rest, strict=True))
            models[name] = replace(models[name], cost_usd=None, **counters)
    return models


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
    """Write the difference between a report and these requests, per model.

    With it, the rows of the run add up to the tokens, cost and requests of its report.
    """
    known = list(requests)
    at = query_value(store, "SELECT ended_at FROM runs WHERE id = ?", (run,))
    rows = [row for row in _adjustment_rows(report, run, known, at) if _changes_a_sum(row)]
    replaced = store.query(f"{_SELECT_REQUESTS} WHERE run = ? AND kind = 'rest'", (run,))
    if not (rows or replaced):
        return
    deltas: SpendDeltas = {}
    add_requests(deltas, replaced, -1)
    add_requests(deltas, rows)
    store.execute("DELETE FROM requests WHERE run = ? AND kind = 'rest'", (run,))
    store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    session = report.session_id or run
    projects: dict[str, str] = dict(store.query(_SELECT_PROJECT, (session,)))
    upsert_spend(store, deltas, report.agent or "unknown", projects)


def _changes_a_sum(row: RequestRow) -> bool:
    return any((*(getattr(row, name) for name in COUNTERS), row.cost_nano, row.requests))


def _adjustment_rows(
    report: Report, run: str, requests: list[RequestRow], at: int
) -> list[RequestRow]:
    by_model: dict[str, list[RequestRow]] = {}
    for request in requests:
        by_model.setdefault(request.model, []).append(request)
    totals = _totals_by_model(report)
    if len(totals) == 1 and len(by_model) == 1:
        # One model: the service may call it differently than the request did.
        totals = dict(zip(by_model, totals.values(), strict=True))
    main = _main_model(report, totals) or next(iter(by_model), "unknown")
    totals.setdefault(main, _ModelTotal(ModelSummary(), None))
    rows = {
        model: _adjustment_row(report, run, model, total, by_model.get(model, []), at)
        for model, total in totals.items()
    }
    rows[main] = _balanced(rows[main], report, [*requests, *rows.values()])
    return [_with_cost_source(row, report) for row in rows.values()]


def _totals_by_model(report: Report) -> dict[str, _ModelTotal]:
    """Return the tokens per model, and the cost where the models' costs make up the total."""
    costs = [usd_to_nano(model.cost_usd) for model in report.models.values()]
    is_split = bool(costs) and sum_optional(costs) == usd_to_nano(report.cost.usd)
    totals: dict[str, _ModelTotal] = {}
    for (full_name, usage), cost in zip(report.models.items(), costs, strict=True):
        name = plain_name(redact(full_name))
        total = _ModelTotal(usage, cost if is_split else None)
        totals[name] = _add_totals(totals[name], total) if name in totals else total
    return totals


def _add_totals(first: _ModelTotal, second: _ModelTotal) -> _ModelTotal:
    sums = {
        name: add_optional(getattr(first.usage, name), getattr(second.usage, name))
        for name in TOKEN_COLUMNS
    }
    return _ModelTotal(ModelSummary(**sums), add_optional(first.cost_nano, second.cost_nano))


def _main_model(report: Report, totals: dict[str, _ModelTotal]) -> str | None:
    """Return the run's model, else the most used one."""
    named = plain_name(redact(report.model)) if report.model is not None else None
    if named in totals or not totals:
        return named
    return max(totals, key=lambda name: _known_tokens(totals[name].usage))


def _known_tokens(usage: ModelSummary) -> int:
    return sum(getattr(usage, name) or 0 for name in TOKEN_COLUMNS)


def _adjustment_row(
    report: Report,
    run: str,
    model: str,
    total: _ModelTotal,
    requests: list[RequestRow],
    at: int,
) -> RequestRow:
    """Return the difference of one model; its cost is None if the model's cost is unknown."""
    counters = {}
    for name in TOKEN_COLUMNS:
        reported = getattr(total.usage, name)
        known = sum(getattr(row, name) for row in requests)
        counters[name] = 0 if reported is None else reported - known
    cost = total.cost_nano
    if cost is not None:
        cost -= sum(row.cost_nano or 0 for row in requests)
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
        source=report.cost.source,
        requests=0,
        **counters,
    )


def _balanced(row: RequestRow, report: Report, rows: list[RequestRow]) -> RequestRow:
    """Return the main model's row with what the models' figures leave out of the report's."""
    changes = {}
    for name in COUNTERS:
        reported = getattr(report.tokens, name)
        if reported is not None:
            missing = reported - sum(getattr(other, name) for other in rows)
            changes[name] = getattr(row, name) + missing
    total = usd_to_nano(report.cost.usd)
    if total is not None:
        missing = total - sum(other.cost_nano or 0 for other in rows)
        changes["cost_nano"] = (row.cost_nano or 0) + missing
    # Not fewer: transcripts show requests that a stream leaves out.
    changes["requests"] = max(0, (report.requests or 0) - sum(other.requests for other in rows))
    return row._replace(**changes)


def _with_cost_source(row: RequestRow, report: Report) -> RequestRow:
    """Return the row with the source of its cost, and what its cache reads saved."""
    cost = row.cost_nano
    if cost is None and (report.cost.usd is not None or not _changes_a_sum(row)):
        cost = 0  # part of the total
    if cost is None:
        return row._replace(source="unknown")
    source = row.source if row.source != "unknown" else "computed"
    known_rates = rates(row.model, utc_datetime(row.at)) if row.cache_read else None
    saved = 0
    if known_rates is not None and source != "local":
        saved = cache_saving(known_rates, row.cache_read)
    return row._replace(cost_nano=cost, saved_nano=saved, source=source)
