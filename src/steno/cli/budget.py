"""`steno budget`: set limits of spending, see how they stand, and tell scripts. It parses and prints; it stops nothing."""

import argparse
from functools import partial

from ..ledger.queries import budget as asks
from ..ledger.queries.time_range import TimeZone
from ..ledger.results import BudgetStatus
from ..ledger.timestamps import now_ms
from ..views.budget import budgets_table
from ..views.formatting import format_money
from .options import CommandParser
from .query_options import format_iso, open_updated_ledger, write_result
from .terminal import detect_style, print_error, print_lines

EXIT_BUDGET_EXCEEDED = 3
EXAMPLES = """examples:
  steno budget set day 20                   at most 20 dollars a day
  steno budget set month 150 --project .    for this folder alone
  steno budget list                         spent, left, and where it leads
  steno budget check || echo "over budget"  for scripts
  steno budget remove day

Periods are those of the time zone; a week begins on Monday. The forecast goes on at the rate of the period so far.
The exit code of `check`, and of `list --check`, is 3 when a budget is exceeded, else 0. Requests without a known
price are counted as unpriced: they are not in the sums.
"""


def run(words: list[str]) -> int:
    """Carry out `steno budget` and return its exit code."""
    parser = _build_parser()
    options = parser.parse_utf8_args(words)
    wanted = {"set": 2, "remove": 1}.get(options.action, 0)
    if len(options.given) != wanted:
        parser.error(
            f"budget {options.action} wants {['nothing more', 'PERIOD', 'PERIOD and AMOUNT'][wanted]}"
        )
    if wanted and options.given[0] not in asks.PERIODS:
        parser.error(f"{options.given[0]!r} is no period: expected day, week or month")
    options.no_import = options.no_import or bool(wanted)
    return {"set": _set, "remove": _remove}.get(options.action, _list)(options)


def _build_parser() -> CommandParser:
    parser = CommandParser("budget", "Set limits of spending, and see how they stand.", EXAMPLES)
    actions = ("list", "set", "remove", "check")
    what = "set PERIOD AMOUNT, remove PERIOD, list (default) or check"
    parser.add_argument(
        "action", nargs="?", default="list", choices=actions, metavar="ACTION", help=what
    )
    parser.add_argument(
        "given", nargs="*", metavar="PERIOD AMOUNT", help="day, week or month; dollars"
    )
    parser.add_argument(
        "--project", metavar="NAME", help="with set and remove: for this project alone"
    )
    parser.add_argument(
        "--check", action="store_true", help="with list: exit code 3 when a budget is exceeded"
    )
    parser.add_argument(
        "--timezone",
        metavar="NAME",
        help="whose days, such as Europe/Berlin (default: the system's)",
    )
    parser.add_output_format()
    parser.add_ledger()
    return parser


def _set(options: argparse.Namespace) -> int:
    unit, amount = options.given
    limit = asks.parse_amount(amount)
    store = open_updated_ledger(options, only_sums=True)
    project = asks.resolve_project(store, options.project)
    asks.set_budget(store, unit, project, limit, now_ms())
    print_lines(
        [f"budget: {format_money(limit / 1e9)} a {unit}" + (f" for {project}" if project else "")]
    )
    return 0


def _remove(options: argparse.Namespace) -> int:
    store = open_updated_ledger(options, only_sums=True)
    (unit,) = options.given
    project = asks.resolve_project(store, options.project)
    if not asks.remove_budget(store, unit, project):
        print_error(f"there was no budget for a {unit}" + (f" and {project}" if project else ""))
        return 2
    print_lines([f"removed the budget for a {unit}" + (f" and {project}" if project else "")])
    return 0


def _list(options: argparse.Namespace) -> int:
    zone = TimeZone(options.timezone)
    found = asks.list_budgets(open_updated_ledger(options, only_sums=True), zone, now_ms())
    exceeded = [one for one in found if one.exceeded]
    write_result(
        options.form,
        lambda: _render(found, exceeded, options.action),
        lambda: [one.as_json(partial(format_iso, zone=zone)) for one in found],
        {"budgets": len(found), "exceeded": len(exceeded)},
        {"timezone": zone.name},
        ("period",),
    )
    return EXIT_BUDGET_EXCEEDED if exceeded and (options.check or options.action == "check") else 0


def _render(found: list[BudgetStatus], exceeded: list[BudgetStatus], action: str) -> list[str]:
    if not found:
        return ["No budgets are set. `steno budget set day 20` sets one of 20 dollars a day."]
    return (
        budgets_table(exceeded if action == "check" else found, detect_style())
        if exceeded or action != "check"
        else []
    )
