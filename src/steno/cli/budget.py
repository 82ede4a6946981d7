"""`steno budget`: sets spending limits and compares them with the ledger."""

import argparse
from functools import partial

from ..ledger.protocol import now_ms
from ..ledger.queries import budget as queries
from ..ledger.queries.filters import TimeZone
from ..ledger.results import BudgetStatus
from ..units import NANO_PER_USD
from ..views.budget import budgets_table
from ..views.formatting import format_money
from .commands import EXIT_BUDGET_EXCEEDED, EXIT_USAGE_ERROR
from .options import CommandParser
from .query_options import format_iso, open_updated_ledger, open_waiting_ledger, write_result
from .terminal import detect_style, print_error, print_lines

EXAMPLES = """examples:
  steno budget set day 20                   at most 20 dollars a day
  steno budget set month 150 --project .    only for this folder
  steno budget list                         spent, remaining and forecast
  steno budget check || echo "over budget"
  steno budget remove day

Weeks begin on Monday. The forecast extrapolates the spending of the current period. `check` and
`list --check` exit with 3 if a budget is exceeded, else with 0. Requests without a known price are
counted as unpriced and not included in the totals.
"""


def run(args: list[str]) -> int:
    """Run `steno budget` and return its exit code."""
    parser = _build_parser()
    options = parser.parse_utf8_args(args)
    names = {"set": ("PERIOD", "AMOUNT"), "remove": ("PERIOD",)}.get(options.action, ())
    if len(options.values) != len(names):
        parser.error(f"budget {options.action} takes {' and '.join(names) or 'no arguments'}")
    if names and options.values[0] not in queries.PERIODS:
        parser.error(f"unknown period {options.values[0]!r}: expected day, week or month")
    options.no_import = options.no_import or bool(names)
    return {"set": _set, "remove": _remove}.get(options.action, _list)(options)


def _build_parser() -> CommandParser:
    parser = CommandParser("budget", "Set spending limits and check them.", EXAMPLES)
    actions = ("list", "set", "remove", "check")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=actions,
        metavar="ACTION",
        help="set PERIOD AMOUNT, remove PERIOD, list (default) or check",
    )
    parser.add_argument(
        "values",
        nargs="*",
        metavar="PERIOD AMOUNT",
        help="period (day, week or month) and amount in dollars",
    )
    parser.add_argument("--project", metavar="NAME", help="set or remove a budget of this project")
    parser.add_argument(
        "--check", action="store_true", help="with list: exit with 3 if a budget is exceeded"
    )
    parser.add_timezone()
    parser.add_output_format()
    parser.add_ledger()
    return parser


def _set(options: argparse.Namespace) -> int:
    period, amount = options.values
    limit = queries.parse_amount(amount)
    open_waiting_ledger(options.ledger).close()  # creates it if needed
    store = open_updated_ledger(options, only_sums=True)
    project = queries.resolve_project(store, options.project)
    queries.set_budget(store, period, project, limit, now_ms())
    print_lines([f"budget: {format_money(limit / NANO_PER_USD)} a {period}{_for_project(project)}"])
    return 0


def _remove(options: argparse.Namespace) -> int:
    store = open_updated_ledger(options, only_sums=True)
    (period,) = options.values
    project = queries.resolve_project(store, options.project)
    if not queries.remove_budget(store, period, project):
        print_error(f"no budget per {period}{_for_project(project)}; see: steno budget list")
        return EXIT_USAGE_ERROR
    print_lines([f"removed the budget per {period}{_for_project(project)}"])
    return 0


def _for_project(project: str | None) -> str:
    return f" for {project}" if project else ""


def _list(options: argparse.Namespace) -> int:
    zone = TimeZone(options.timezone)
    budgets = queries.list_budgets(open_updated_ledger(options, only_sums=True), zone, now_ms())
    exceeded = [budget for budget in budgets if budget.exceeded]
    write_result(
        options.form,
        lambda: _render(budgets, exceeded, options.action),
        lambda: [budget.as_json(partial(format_iso, zone=zone)) for budget in budgets],
        total={"budgets": len(budgets), "exceeded": len(exceeded)},
        extra={"timezone": zone.name},
        leading_columns=("period",),
    )
    return EXIT_BUDGET_EXCEEDED if exceeded and (options.check or options.action == "check") else 0


def _render(budgets: list[BudgetStatus], exceeded: list[BudgetStatus], action: str) -> list[str]:
    if not budgets:
        return ["No budgets set. To set one of 20 dollars a day: steno budget set day 20"]
    shown = exceeded if action == "check" else budgets
    return budgets_table(shown, detect_style()) if shown else []
