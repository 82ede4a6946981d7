"""Budgets per day, week or month, for one project or all, and their current state."""

from decimal import Decimal, InvalidOperation
from pathlib import Path

from ...errors import StenoError
from ...units import NANO_PER_USD
from ..protocol import Store
from ..results import BudgetStatus
from ..totals import sum_totals
from .filters import Filters, TimeZone, current_period, resolve_projects
from .usage import group_spend

PERIODS = ("day", "week", "month")
MAX_BUDGET_USD = Decimal(10**9)  # in nano-dollars, still within a 64-bit column
MAX_PROJECTS_SHOWN = 5


def parse_amount(text: str) -> int:
    """Parse an amount of dollars into nano-dollars. StenoError if it is invalid."""
    try:
        amount = Decimal(text.strip().removeprefix("$").replace(",", ""))
        if not 0 < amount < MAX_BUDGET_USD:  # also rejects NaN
            raise InvalidOperation
    except InvalidOperation:
        raise StenoError(
            f"{text}: expected an amount in dollars above 0, such as 20 or 12.50"
        ) from None
    return int(amount * NANO_PER_USD)


def resolve_project(store: Store, name: str | None) -> str:
    """Return the project's folder; empty for None (all projects).

    A project without any usage yet is given by its folder.
    """
    if name is None:
        return ""
    matches = resolve_projects(store, name) or ()
    if len(matches) > 1:
        shown = ", ".join(matches[:MAX_PROJECTS_SHOWN])
        raise StenoError(f"--project {name}: ambiguous, matches several projects: {shown}")
    if matches:
        return matches[0]
    if "/" not in name and not Path(name).is_dir():
        raise StenoError(f"--project {name}: no such project in the ledger, and no such folder")
    return str(Path(name).absolute())


def set_budget(store: Store, period: str, project: str, limit_nano: int, now: int) -> None:
    """Set a budget, replacing the one for the same period and project."""
    with store.transaction():
        store.upsert(
            "budgets",
            ("period", "project", "limit_nano", "set_at"),
            [(period, project, limit_nano, now)],
            "ON CONFLICT (period, project) "
            "DO UPDATE SET limit_nano = excluded.limit_nano, set_at = excluded.set_at",
        )


def remove_budget(store: Store, period: str, project: str) -> bool:
    """Remove a budget; False if there was none."""
    sql = "DELETE FROM budgets WHERE period = ? AND project = ?"
    with store.transaction():
        return store.execute(sql, (period, project)) > 0


def list_budgets(store: Store, zone: TimeZone, now: int) -> list[BudgetStatus]:
    """Return every budget with what was spent in its current period, shortest period first."""
    budgets = []
    for period, project, limit_nano in store.query(
        "SELECT period, project, limit_nano FROM budgets"
    ):
        time_range = current_period(zone, now, period)
        since = time_range.since or 0
        until = time_range.until or 1
        filters = Filters(time_range, (project,) if project else None)
        spent = sum_totals(row.totals for row in group_spend(store, "agent", zone, filters))
        budgets.append(
            BudgetStatus(
                period=period,
                project=project or None,
                limit_nano=int(limit_nano),
                spent_nano=spent.reported_nano + spent.computed_nano,
                unpriced=spent.unpriced,
                since=since,
                until=until,
                elapsed_fraction=(now - since) / (until - since),
            )
        )
    return sorted(budgets, key=lambda budget: (PERIODS.index(budget.period), budget.project or ""))
