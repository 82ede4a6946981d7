"""Budgets: limits per day, week or month, for all projects or one, and how the present period stands. It stops nothing."""

from decimal import Decimal, InvalidOperation
from pathlib import Path

from ...errors import StenoError
from ...event import NANO_PER_USD
from ..results import BudgetStatus
from ..store import Store
from ..totals import UsageTotals, sum_totals
from . import filters as where
from .filters import Filters
from .time_range import TimeZone, current_period
from .usage import group_spend

PERIODS = ("day", "week", "month")
MAX_BUDGET_USD = Decimal(10**9)  # dollars: beyond any budget, below what a column holds


def parse_amount(text: str) -> int:
    """An amount of dollars as people write it. StenoError if it is none."""
    try:
        amount = Decimal(text.strip().removeprefix("$").replace(",", ""))
        if not 0 < amount < MAX_BUDGET_USD:  # also false for what is no number at all
            raise InvalidOperation
    except InvalidOperation:
        raise StenoError(
            f"{text}: expected an amount of dollars above 0, such as 20 or 12.50"
        ) from None
    return int(amount * NANO_PER_USD)


def resolve_project(store: Store, given: str | None) -> str:
    """The one project that is meant; empty for all. One that has not spent anything yet is given by its folder."""
    if given is None:
        return ""
    found = where.resolve_projects(store, given) or ()
    if len(found) > 1:
        raise StenoError(
            f"--project {given}: several projects are called so: {', '.join(found[:5])}"
        )
    if found:
        return found[0]
    if "/" not in given and not Path(given).is_dir():
        raise StenoError(
            f"--project {given}: no project in the ledger is called so, and no folder here"
        )
    return str(Path(given).absolute())


def set_budget(store: Store, unit: str, project: str, limit_nano: int, now: int) -> None:
    """Set a budget, in place of an earlier one for the same period and project."""
    clash = "ON CONFLICT (period, project) DO UPDATE SET limit_nano = excluded.limit_nano, set_at = excluded.set_at"
    with store.transaction():
        store.upsert(
            "budgets",
            ("period", "project", "limit_nano", "set_at"),
            [(unit, project, limit_nano, now)],
            clash,
        )


def remove_budget(store: Store, unit: str, project: str) -> bool:
    """Take a budget away; False if there was none."""
    with store.transaction():
        return (
            store.execute("DELETE FROM budgets WHERE period = ? AND project = ?", (unit, project))
            > 0
        )


def list_budgets(store: Store, zone: TimeZone, now: int) -> list[BudgetStatus]:
    """Every budget with what was spent of it, the shortest period first."""
    rows = store.query("SELECT period, project, limit_nano FROM budgets")
    rows.sort(key=lambda row: (PERIODS.index(row[0]), row[1]))
    found = []
    for unit, project, limit in rows:
        span = current_period(zone, now, unit)
        spent = _period_sums(store, zone, Filters(span, (project,) if project else None))
        begin, end = span.since or 0, span.until or 1
        passed = (now - begin) / (end - begin)
        nano = spent.reported_nano + spent.computed_nano
        found.append(
            BudgetStatus(
                unit, project or None, int(limit), nano, spent.unpriced, begin, end, passed
            )
        )
    return found


def _period_sums(store: Store, zone: TimeZone, filters: Filters) -> UsageTotals:
    lines = group_spend(store, "agent", zone, filters)
    return sum_totals([line.totals for line in lines])
