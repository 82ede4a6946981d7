"""`steno top`: shows active and recent runs full-screen, or once as a table."""

import argparse
import sys

from ..errors import StenoError
from ..installation import extra_command
from .options import CommandParser
from .ps import recover_finished_runs
from .terminal import detect_style, is_terminal, print_lines

EXAMPLES = """examples:
  steno top
  steno top --once     print a table once, as when stdout is not a terminal
  watch -n 5 steno top --once

Keys: j and k move, Enter opens a run, / filters, s stops a run, r shows the command to resume it,
? lists all keys, q quits. The full screen needs the extra `tui`.
"""
ONCE_ROWS = 20


def run(args: list[str]) -> int:
    """Run `steno top` and return its exit code."""
    options = _parse_args(args)
    recover_finished_runs(options.ledger)
    if options.once or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        _print_once(options.ledger)
        return 0
    try:
        from ..tui.app import TopApp
    except ModuleNotFoundError as error:
        raise StenoError(
            f"the full screen needs the package {error.name}: {extra_command('tui')}; "
            "without it: steno top --once"
        ) from None
    TopApp(options.ledger).run()
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("top", "Show active and recent runs, limits and budgets live.", EXAMPLES)
    parser.add_argument("--once", action="store_true", help="print a table once and exit")
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)


def _print_once(ledger: str | None) -> None:
    from ..tui.snapshot import gauge_lines, load_snapshot, run_lines

    snapshot = load_snapshot(ledger)
    style = detect_style()
    header, lines = run_lines(snapshot.runs[:ONCE_ROWS], style)
    body = [header, *lines] if lines else ["No runs yet: steno run PROMPT"]
    print_lines([*gauge_lines(snapshot, style), "", *body])
