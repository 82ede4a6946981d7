"""What the screen shows: active runs, recent runs, limits and budgets, as sanitized lines."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec import Struct

from ..analysis.usage import nano_to_usd
from ..ledger.protocol import now_ms
from ..ledger.queries import runs as run_queries
from ..ledger.queries.budget import list_budgets
from ..ledger.queries.filters import TimeRange, TimeZone, WhereClause
from ..ledger.queries.limits import LimitStatus, list_limits
from ..ledger.results import BudgetStatus, RunSummary
from ..ledger.store import check_named_ledger, ledger_exists, open_ledger
from ..runner.run_status import active_run_states
from ..views.formatting import (
    format_cents,
    format_count,
    format_duration,
    format_money,
    gauge,
    single_line,
    verdict_colour,
)
from ..views.limits import format_span, utilization_colour, window_label
from ..views.live import STATE_STYLES, format_clock
from ..views.ps import activity, context_cell
from ..views.runs import cost_text
from ..views.table import Cell, Column, PageStyle, render_table

MAX_RECENT_RUNS = 200
GAUGE_COLUMNS = 10
COLUMNS = (
    Column("id"),
    Column("state"),
    Column("when", drop_priority=4),
    Column("time", align_right=True, drop_priority=2),
    Column("cost", align_right=True),
    Column("context", drop_priority=3),
    Column("agent", drop_priority=6),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("activity", drop_priority=1, can_truncate=True, min_columns=20),
)


class TopRun(Struct):
    """A run in the list. `cells` are those of COLUMNS."""

    run_id: str
    session_id: str | None
    is_active: bool
    agent: str
    state: str
    cells: list[Cell | str]
    recording: str | None = None
    cwd: str | None = None
    prompt: str = ""

    def matches(self, words: str) -> bool:
        """Whether all words occur in what is shown, in the ID or in the prompt."""
        shown = (cell if isinstance(cell, str) else cell.text for cell in self.cells)
        text = " ".join((*shown, self.run_id, self.prompt)).lower()
        return all(word in text for word in words.lower().split())


class Snapshot(Struct):
    """The state of one moment."""

    runs: list[TopRun]
    limits: list[LimitStatus]
    budgets: list[BudgetStatus]
    today: dict[str, Any]  # totals of the runs that started today
    now: int


def load_snapshot(ledger: str | None) -> Snapshot:
    """Ask the active runs and the ledger."""
    zone = TimeZone()
    now = now_ms()
    active = active_run_states()
    recent: list[RunSummary] = []
    limits: list[LimitStatus] = []
    budgets: list[BudgetStatus] = []
    today: dict[str, Any] = {"runs": 0, "failed": 0, "cost": {"usd": None}}
    check_named_ledger(ledger)
    if ledger_exists(ledger):
        with closing(open_ledger(ledger, read_only=True)) as store:
            recent = run_queries.list_runs(store, WhereClause(), MAX_RECENT_RUNS)
            limits = list_limits(store, now)
            budgets = list_budgets(store, zone, now)
            midnight = zone.start_of_day(zone.to_local(now).date())
            where = WhereClause().add_time_range("started_at", TimeRange(midnight, None))
            today = run_queries.sum_runs(store, where)
    known = {row["run_id"] for row in active}
    ids = list({*known, *(run.id for run in recent)})
    shorts = run_queries.unique_prefixes(ids, ids)
    rows = [_active_run(row, shorts[row["run_id"]]) for row in reversed(active)]
    rows += [_recent_run(run, shorts[run.id], zone) for run in recent if run.id not in known]
    return Snapshot(rows, limits, budgets, today, now)


def _active_run(row: Mapping[str, Any], short: str) -> TopRun:
    state = str(row["state"])
    cells: list[Cell | str] = [
        short,
        Cell(state, STATE_STYLES.get(state, "red")),
        "now",
        format_clock(row["elapsed_s"]),
        format_money(row["cost_usd"]) if row["cost_usd"] is not None else "",
        context_cell(row["context"]["fraction"]),
        row["agent"],
        row["cwd"] or "",
        activity(row) or row["name"] or row["prompt"] or "",
    ]
    return TopRun(
        run_id=row["run_id"],
        session_id=row["session_id"],
        is_active=True,
        agent=row["agent"],
        state=state,
        cells=cells,
        recording=row["recording"],
        cwd=row["cwd"],
        prompt=row["prompt"] or "",
    )


def _recent_run(run: RunSummary, short: str, zone: TimeZone) -> TopRun:
    fraction = None
    if run.context_used is not None and run.context_limit:
        fraction = run.context_used / run.context_limit
    when = "" if run.started_at is None else f"{zone.to_local(run.started_at):%m-%d %H:%M}"
    cells: list[Cell | str] = [
        short,
        Cell(run.state, verdict_colour(run.verdict) if run.verdict else "cyan"),
        when,
        "" if run.duration_ms is None else format_duration(run.duration_ms),
        cost_text(run),
        context_cell(fraction),
        run.agent or "",
        run.project or "",
        run.reason or run.title,
    ]
    return TopRun(
        run_id=run.id,
        session_id=run.session_id,
        is_active=False,
        agent=run.agent or "",
        state=run.state,
        cells=cells,
        recording=run.source,
        cwd=run.project,
        prompt=run.title,
    )


def run_lines(runs: Sequence[TopRun], style: PageStyle) -> tuple[str, list[str]]:
    """The header, and one line per run."""
    header, *lines = render_table(style, COLUMNS, [run.cells for run in runs])
    return header, lines


def gauge_lines(snapshot: Snapshot, style: PageStyle) -> list[str]:
    """A title with the totals of today, and one line of gauges: limits, then budgets."""
    active = sum(run.is_active for run in snapshot.runs)
    today = snapshot.today
    facts = [f"{active} active", f"{format_count(today['runs'], 'run')} today"]
    if today["failed"]:
        facts.append(style.paint(f"{today['failed']} failed", "red"))
    if today["cost"]["usd"] is not None:
        facts.append(f"{format_cents(today['cost']['usd'])} today")
    clock = time.strftime("%H:%M:%S", time.localtime(snapshot.now / 1000))
    title = " · ".join([style.paint("steno top", "bold"), *facts, clock])
    parts = [
        *(
            _limit_text(limit, limit.utilization, snapshot.now, style)
            for limit in snapshot.limits
            if limit.utilization is not None
        ),
        *(_budget_text(budget, style) for budget in snapshot.budgets),
    ]
    gauges: list[str] = []
    used = style.columns
    for text, columns in parts:
        if used + columns + 3 > style.columns:
            gauges.append(text)
            used = columns
        else:
            gauges[-1] += f" · {text}"
            used += columns + 3
    return [title, *gauges]


def _limit_text(
    limit: LimitStatus, utilization: float, now: int, style: PageStyle
) -> tuple[str, int]:
    """The gauge of a limit, and its width."""
    label = f"{single_line(limit.agent)} {single_line(window_label(limit.window))}"
    blocks = f"{gauge(utilization, GAUGE_COLUMNS)} {utilization:.0%}"
    reset = ""
    if limit.resets_at is not None:
        reset = f" resets in {format_span(limit.resets_at - now)}"
    colour = utilization_colour(utilization)
    return f"{label} {style.paint(blocks, colour)}{reset}", len(label + blocks + reset) + 1


def _budget_text(budget: BudgetStatus, style: PageStyle) -> tuple[str, int]:
    fraction = budget.spent_nano / budget.limit_nano if budget.limit_nano else 1.0
    label = f"budget {budget.period}"
    if budget.project:
        label += f" {single_line(budget.project).rpartition('/')[2]}"
    blocks = f"{gauge(fraction, GAUGE_COLUMNS)} {fraction:.0%}"
    limit = f" of {format_cents(nano_to_usd(budget.limit_nano))}"
    text = f"{label} {style.paint(blocks, utilization_colour(fraction))}{limit}"
    return text, len(label + blocks + limit) + 1
