"""The agent's own account of a run against the requests that are known of it, so that the sums are what the agent says.

The account is the truth about a run's cost. Requests are booked at their own time and price; what the account says more
or less, for each model, is one row beside them (kind `rest`). A request that only a transcript shows, made while a run with
an account went on in the same session, is in that account: a compaction, a helper, a subagent in the background.
"""

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from ..analysis.usage import base_model_name as plain_name
from ..codec.redact import redact
from ..pricing import NANO_PER_USD
from ..report import ModelSummary, Report
from .rollups import (
    HOUR_MS,
    REQUEST_COLUMNS,
    SPEND_KEY_COLUMNS,
    SPEND_SUM_COLUMNS,
    SumDeltas,
    add_on_conflict,
    replace_on_conflict,
    spend_delta,
)
from .rows import MAX_INT64, ParsedRequest, stable_id
from .store import Row, Store

TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output")
KNOWN_TOTAL_SOURCES = (
    "reported",
    "local",
)  # where the whole cost of a run is known from: the agent; a server that costs nothing
RUN_SLACK_MS = 5_000  # milliseconds around a run in which a request of its session is still its own: a start before the first line
_REQUEST_COLUMNS_SQL = ", ".join(REQUEST_COLUMNS)


def usd_to_nano(usd: float | None) -> int | None:
    """Dollars as nano-dollars; what no column holds is not known."""
    return (
        round(usd * NANO_PER_USD)
        if usd is not None and abs(usd) * NANO_PER_USD < MAX_INT64
        else None
    )


def load_report(store: Store, run: str) -> Report | None:
    """The report of a run, as it was booked; None where there is none that this version can read."""
    rows = store.query("SELECT report FROM runs WHERE id = ?", (run,))
    if not rows or rows[0][0] is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(rows[0][0]), type=Report)
    except (zlib.error, msgspec.MsgspecError):
        return None


def request_row(
    agent: str,
    told: ParsedRequest,
    cost: int | None,
    saved: int,
    source: str,
    kind: str = "request",
) -> Row:
    """A row of `requests`."""
    figures = (
        told.input,
        told.cache_write,
        told.cache_read,
        told.output,
        told.reasoning,
        told.cache_write_1h,
    )
    whose = (
        told.id,
        agent,
        told.session,
        told.run,
        kind,
        told.message,
        told.parent,
        told.model,
        told.at,
    )
    return (*whose, *figures, cost, saved, source)


def add_request_row(sums: SumDeltas, row: Row, projects: dict[str, str], sign: int = 1) -> None:
    """Add a row of `requests` to the sums of `spend`, or take it away."""
    projects.setdefault(row[2], "")
    sums.add((row[2], row[7], row[8] // HOUR_MS), spend_delta(row), sign)


def upsert_spend(store: Store, sums: SumDeltas, agent: str, projects: dict[str, str]) -> None:
    """Carry changes over to `spend`."""
    rows = [
        (*key, agent, projects[key[0]], *figures) for key, figures in sorted(sums.by_key.items())
    ]
    store.upsert(
        "spend",
        (*SPEND_KEY_COLUMNS, "agent", "project", *SPEND_SUM_COLUMNS),
        rows,
        add_on_conflict("spend", SPEND_KEY_COLUMNS, SPEND_SUM_COLUMNS),
    )


# -- whose a request is ------------------------------------------------------------------------------------------


class RunIntervals:
    """When the runs with an account went on, of some sessions."""

    def __init__(self, store: Store, sessions: Iterable[str]) -> None:
        names = list(sessions)
        self._intervals: dict[str, list[tuple[int, int, str]]] = {}
        self.cost_sources: dict[str, str] = {}  # of each run, where its cost is known from
        for start in range(0, len(names), 500):
            part = names[start : start + 500]
            marks = ",".join("?" * len(part))
            columns, known = (
                "session, started_at, ended_at, id, cost_source",
                ", ".join(f"'{name}'" for name in KNOWN_TOTAL_SOURCES),
            )
            asked = f"SELECT {columns} FROM runs WHERE cost_source IN ({known}) AND session IN ({marks})"
            for session, begun, ended, run, source in store.query(asked, part):
                self._intervals.setdefault(session, []).append((begun, ended, run))
                self.cost_sources[run] = source

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def run_at(self, session: str, at: int) -> str | None:
        """The run that went on in a session at a time: the one it lies in, else the nearest within the slack."""
        spans = self._intervals.get(session)
        if spans is None:
            return None
        away, run = min((max(begun - at, at - ended, 0), run) for begun, ended, run in spans)
        return run if away <= RUN_SLACK_MS else None


def adopt_requests(store: Store, run: str, session: str, agent: str, account: str) -> None:
    """Take requests that a transcript told of before as those of this run, where they were made while it went on."""
    free = f"SELECT {_REQUEST_COLUMNS_SQL} FROM requests WHERE session = ? AND run IS NULL AND kind = 'request'"
    running = RunIntervals(store, [session])
    own = [row for row in store.query(free, (session,)) if running.run_at(session, row[8]) == run]
    if not own:
        return
    sums, projects = SumDeltas(), _projects_by_session(store, session)
    local = account == "local"
    rows = [
        (*row[:3], run, *row[4:15], *((0, 0) if local else (row[15] or 0, row[16])), account)
        for row in own
    ]
    for old, new in zip(own, rows, strict=True):
        add_request_row(sums, old, projects, -1)
        add_request_row(sums, new, projects)
    store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, sums, agent, projects)


def _projects_by_session(store: Store, session: str) -> dict[str, str]:
    return dict(
        store.query("SELECT id, coalesce(project, '') FROM sessions WHERE id = ?", (session,))
    )


# -- the rest ----------------------------------------------------------------------------------------------------


def reconcile(store: Store, runs: Iterable[str], gone: Sequence[Row] = ()) -> None:
    """For each run with an account, book what that says beyond the run's requests that are in the ledger, or were (`gone`)."""
    for run in runs:
        report = load_report(store, run)
        if report is not None:
            rows = store.query(
                f"SELECT {_REQUEST_COLUMNS_SQL} FROM requests WHERE run = ? AND kind = 'request'",
                (run,),
            )
            put_adjustment(store, report, run, [*rows, *gone])


def put_adjustment(store: Store, report: Report, run: str, rows: Iterable[Row]) -> None:
    """Book what a report says beyond these rows of `requests`, model by model."""
    shown: dict[str, list[Row]] = {}
    for row in rows:
        shown.setdefault(row[7], []).append(row)
    at = store.query("SELECT ended_at FROM runs WHERE id = ?", (run,))[0][0]
    account = _reported_by_model(report, shown).items()
    _put_adjustment_rows(
        store,
        report,
        [
            _adjustment_row(report, run, name, share, shown.get(name, []), at)
            for name, share in account
        ],
    )


def _put_adjustment_rows(store: Store, report: Report, rest: Sequence[Row]) -> None:
    before = store.fetch_by_id("requests", REQUEST_COLUMNS, [row[0] for row in rest])
    rest = [row for row in rest if row[0] in before or any(row[9:14]) or row[15]]
    if not rest:
        return
    sums, projects = SumDeltas(), _projects_by_session(store, rest[0][2])
    for row in rest:
        if row[0] in before:
            add_request_row(sums, before[row[0]], projects, -1)
        add_request_row(sums, row, projects)
    store.upsert("requests", REQUEST_COLUMNS, rest, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, sums, report.agent or "unknown", projects)


def _reported_by_model(
    report: Report, shown: dict[str, list[Row]]
) -> dict[str, tuple[ModelSummary, int | None]]:
    """What the report says of each model: its tokens and its cost in nano-dollars."""
    total = usd_to_nano(report.cost.usd)
    costs = {name: usd_to_nano(model.cost_usd) for name, model in report.models.items()}
    if costs and None not in costs.values() and sum(cost or 0 for cost in costs.values()) == total:
        return {
            _ledger_model_name(name): (model, costs[name]) for name, model in report.models.items()
        }
    found: dict[str, tuple[ModelSummary, int | None]] = {
        _ledger_model_name(name): (model, None) for name, model in report.models.items()
    }
    main = _ledger_model_name(
        report.model or next(iter(report.models), None) or next(iter(shown), "unknown")
    )
    tokens = report.tokens
    model = (
        found[main][0]
        if main in found
        else ModelSummary(tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
    )
    if (
        total is not None
    ):  # only the whole is known: the main model carries what the others' prices do not explain
        others = sum(row[15] or 0 for name, rows in shown.items() if name != main for row in rows)
        found[main] = (model, total - others)
    elif not found:
        found[main] = (model, None)
    return found


def _ledger_model_name(model: str) -> str:
    """A model as the ledger calls it."""
    return plain_name(redact(model))


def _adjustment_row(
    report: Report,
    run: str,
    name: str,
    account: tuple[ModelSummary, int | None],
    shown: list[Row],
    at: int,
) -> Row:
    share, cost = account
    figures = {}
    for place, counter in enumerate(TOKEN_COLUMNS, 9):
        told = getattr(share, counter)
        figures[counter] = 0 if told is None else told - sum(row[place] for row in shown)
    request = ParsedRequest(
        stable_id("rest", run, name), report.session_id or run, run, None, None, name, at, **figures
    )
    rest = None if cost is None else cost - sum(row[15] or 0 for row in shown)
    if cost is None and not any(figures.values()):
        rest = 0
    source = (
        "unknown"
        if rest is None
        else report.cost.source
        if report.cost.source != "unknown"
        else "computed"
    )
    return request_row(report.agent or "unknown", request, rest, 0, source, "rest")
