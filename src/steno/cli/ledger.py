"""`steno ledger`: help and errors of the ledger commands, each of which has its own module."""

from .commands import LEDGER_COMMANDS
from .options import CommandParser

SUMMARIES = "\n".join(f"  {name:10}  {text}" for name, text in LEDGER_COMMANDS.items())
EXAMPLES = """commands:
{summaries}

examples:
  steno ledger import
  steno ledger prune --older-than 90d
  steno ledger sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"

Run `steno ledger COMMAND --help` for the options of a command. The ledger is a SQLite file in the
user's data directory, or the one given by --ledger or STENO_LEDGER.
"""


def run(args: list[str]) -> int:
    """Print the help, or reject an unknown command; known ones are dispatched before."""
    parser = CommandParser(
        "ledger",
        "Import, prune, rebuild or query the ledger.",
        EXAMPLES.format(summaries=SUMMARIES),
    )
    parser.usage = "steno ledger COMMAND [OPTIONS]"
    parser.add_argument(
        "command",
        nargs="?",
        choices=tuple(LEDGER_COMMANDS),
        metavar="COMMAND",
        help=", ".join(LEDGER_COMMANDS),
    )
    parser.add_debug()
    if not args:
        parser.print_help()
        return 0
    if not args[0].startswith("-"):
        parser.error(f"unknown command {args[0]!r}{parser.suggest(args[0], LEDGER_COMMANDS)}")
    parser.parse_args(args)
    return 0
