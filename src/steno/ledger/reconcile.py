"""Reconcile the agent's own total of a run with the requests known of it.

The agent's total is authoritative for a run's cost. Requests keep their own time and price; the
difference to the total, per model, is one more row (kind `rest`). A request that only a transcript
shows, made while a run with a total was active in the same session, is part of that total: a
compaction, a helper, a subagent in the background.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..analysis.usage import base_model_name as plain_name
from ..codec.redact import redact
from ..event import NANO_PER_USD
from ..report import ModelSummary, Report
from .protocol import Store, chunks, placeholders, query_value
from .queries.runs import load_report
from .rows import MAX_INT64, REQUEST_COLUMNS, ParsedRequest, RequestRow, request_row, stable_id
from .totals import SpendSums, SumDeltas, add_request, replace_on_conflict, upsert_spend

TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output")
KNOWN_TOTAL_SOURCES = ("reported", "local")  # the agent's total; a local server, which is free
RUN_SLACK_MS = 5_000  # a request this close to a run is its own: runs start before their first line
_REQUEST_COLUMNS_SQL = ", ".join(REQUEST_COLUMNS)


class _ModelTotal(NamedTuple):
    """What the report says about one model."""

    usage: ModelSummary
    cost_nano: int | None


class _RunInterval(NamedTuple):
    started_at: int
    ended_at: int
    run: str


def usd_to_nano(usd: float | None) -> int | None:
    """Return nano-dollars; None if unknown or too large for a column."""
    if usd is None or abs(usd) * NANO_PER_USD >= MAX_INT64:
        return None
    return round(usd * NANO_PER_USD)


# -- runs of requests ----------------------------------------------------------------------------


class RunIntervals:
    """When the runs with a known total were active, for some sessions."""

    def __init__(self, store: Store, sessions: Iterable[str]) -> None:
        self._intervals: dict[str, list[_RunInterval]] = {}
        self.cost_sources: dict[str, str] = {}  # by run
        for part in chunks(list(sessions)):
            sql = (
                "SELECT session, started_at, ended_at, id, cost_source FROM runs "
                f"WHERE cost_source IN ({placeholders(len(KNOWN_TOTAL_SOURCES))}) "
                f"AND session IN ({placeholders(len(part))})"
            )
            for session, started_at, ended_at, run, source in store.query(
                sql, (*KNOWN_TOTAL_SOURCES, *part)
            ):
                interval = _RunInterval(started_at, ended_at, run)
                self._intervals.setdefault(session, []).append(interval)
                self.cost_sources[run] = source

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def run_at(self, session: str, at: int) -> str | None:
        """Return the run that was active at a time, else the nearest one within the slack."""
        intervals = self._intervals.get(session)
        if intervals is None:
            return None
        distance, run = min(
            (max(interval.started_at - at, at - interval.ended_at, 0), interval.run)
            for interval in intervals
        )
        return run if distance <= RUN_SLACK_MS else None


def adopt_requests(store: Store, run: str, session: str, agent: str, cost_source: str) -> None:
    """Assign requests of the session without a run to this run if it was active at their time."""
    sql = (
        f"SELECT {_REQUEST_COLUMNS_SQL} FROM requests "
        "WHERE session = ? AND run IS NULL AND kind = 'request'"
    )
    intervals = RunIntervals(store, [session])
    unassigned = map(RequestRow._make, store.query(sql, (session,)))
    own = [row for row in unassigned if intervals.run_at(session, row.at) == run]
    if not own:
        return
    is_local = cost_source == "local"
    sums = SumDeltas[SpendSums]()
    projects = _projects_by_session(store, session)
    adopted = []
    for row in own:
        new = row._replace(
            run=run,
            cost_nano=0 if is_local else row.cost_nano or 0,
            saved_nano=0 if is_local else row.saved_nano,
            source=cost_source,
        )
        add_request(sums, row, projects, -1)
        add_request(sums, new, projects)
        adopted.append(new)
    store.upsert("requests", REQUEST_COLUMNS, adopted, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, sums, agent, projects)


def _projects_by_session(store: Store, session: str) -> dict[str, str]:
    sql = "SELECT id, coalesce(project, '') FROM sessions WHERE id = ?"
    return dict(store.query(sql, (session,)))


# -- adjustments ---------------------------------------------------------------------------------


def reconcile(store: Store, runs: Iterable[str], pruned: Sequence[RequestRow] = ()) -> None:
    """Write the adjustment of each run with a total, against its stored and pruned requests."""
    sql = f"SELECT {_REQUEST_COLUMNS_SQL} FROM requests WHERE run = ? AND kind = 'request'"
    for run in runs:
        report = load_report(store, run)
        if report is not None:
            rows = map(RequestRow._make, store.query(sql, (run,)))
            put_adjustment(store, report, run, [*rows, *pruned])


def put_adjustment(store: Store, report: Report, run: str, rows: Iterable[RequestRow]) -> None:
    """Write the difference between a report and these rows of `requests`, per model."""
    by_model: dict[str, list[RequestRow]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    at = query_value(store, "SELECT ended_at FROM runs WHERE id = ?", (run,))
    _put_adjustment_rows(
        store,
        report,
        [
            _adjustment_row(report, run, model, total, by_model.get(model, []), at)
            for model, total in _totals_by_model(report, by_model).items()
        ],
    )


def _put_adjustment_rows(store: Store, report: Report, rows: Sequence[RequestRow]) -> None:
    existing = store.fetch_by_id("requests", REQUEST_COLUMNS, [row.id for row in rows])
    rows = [row for row in rows if row.id in existing or _is_nonzero(row)]
    if not rows:
        return
    sums = SumDeltas[SpendSums]()
    projects = _projects_by_session(store, rows[0].session)
    for row in rows:
        if row.id in existing:
            add_request(sums, RequestRow._make(existing[row.id]), projects, -1)
        add_request(sums, row, projects)
    store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, sums, report.agent or "unknown", projects)


def _is_nonzero(row: RequestRow) -> bool:
    counters = (row.input, row.cache_write, row.cache_read, row.output, row.reasoning)
    return any(counters) or bool(row.cost_nano)


def _totals_by_model(
    report: Report, by_model: dict[str, list[RequestRow]]
) -> dict[str, _ModelTotal]:
    total = usd_to_nano(report.cost.usd)
    costs = {name: usd_to_nano(model.cost_usd) for name, model in report.models.items()}
    if costs and None not in costs.values() and sum(cost or 0 for cost in costs.values()) == total:
        return {
            _ledger_model_name(name): _ModelTotal(model, costs[name])
            for name, model in report.models.items()
        }
    totals = {
        _ledger_model_name(name): _ModelTotal(model, None) for name, model in report.models.items()
    }
    main = _ledger_model_name(
        report.model or next(iter(report.models), None) or next(iter(by_model), "unknown")
    )
    usage = totals[main].usage if main in totals else _main_model_usage(report)
    if total is not None:
        # Only the sum is known: the main model gets what the prices of the others don't explain.
        others = sum(
            row.cost_nano or 0 for name, rows in by_model.items() if name != main for row in rows
        )
        totals[main] = _ModelTotal(usage, total - others)
    elif not totals:
        totals[main] = _ModelTotal(usage, None)
    return totals


def _main_model_usage(report: Report) -> ModelSummary:
    tokens = report.tokens
    return ModelSummary(tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)


def _ledger_model_name(model: str) -> str:
    return plain_name(redact(model))


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
    request = ParsedRequest(
        id=stable_id("rest", run, model),
        session=report.session_id or run,
        run=run,
        message=None,
        parent=None,
        model=model,
        at=at,
        **counters,
    )
    cost = None
    if total.cost_nano is not None:
        cost = total.cost_nano - sum(row.cost_nano or 0 for row in rows)
    elif not any(counters.values()):
        cost = 0
    source = report.cost.source if report.cost.source != "unknown" else "computed"
    if cost is None:
        source = "unknown"
    agent = report.agent or "unknown"
    return RequestRow._make(request_row(agent, request, cost, 0, source, "rest"))
