"""`steno fleet`: batches of tasks, workers, and what they report."""

from collections.abc import Callable

from .commands import FLEET_COMMANDS
from .options import CommandParser

MODULES = {  # others are in fleet_query; fleet_run loads the runner
    **dict.fromkeys(("batch", "spawn", "pipe", "worker"), "fleet_run"),
    "wait": "fleet_wait",
}
SUMMARIES = "\n".join(f"  {name:10}  {text}" for name, text in FLEET_COMMANDS.items())
EXAMPLES = """commands:
{summaries}

examples:
  steno fleet batch tasks.jsonl --jobs 8 --worktree --budget 20
  steno fleet worker --ledger postgresql://db.example/steno --jobs 16
  steno fleet status
  steno fleet wait tasks && steno fleet collect tasks > results.jsonl

Run `steno fleet COMMAND --help` for the options of a command. Tasks are queued durably: in a file
beside the ledger, or in the ledger's PostgreSQL database, which several machines can share.
"""


def run(args: list[str]) -> int:
    """Run the given fleet command; without one, print the help."""
    if args and args[0] in FLEET_COMMANDS:
        return _import_command(args[0])(args[1:])
    parser = CommandParser(
        "fleet", "Run many tasks, on one machine or many.", EXAMPLES.format(summaries=SUMMARIES)
    )
    parser.usage = "steno fleet COMMAND [OPTIONS]"
    parser.add_argument(
        "command",
        nargs="?",
        choices=tuple(FLEET_COMMANDS),
        metavar="COMMAND",
        help=", ".join(FLEET_COMMANDS),
    )
    parser.add_debug()
    if not args:
        parser.print_help()
        return 0
    if not args[0].startswith("-"):
        parser.error(f"unknown command {args[0]!r}{parser.suggest(args[0], FLEET_COMMANDS)}")
    parser.parse_args(args)
    return 0


def _import_command(name: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    module = MODULES.get(name, "fleet_query")
    command: Callable[[list[str]], int] = getattr(
        import_module(f".{module}", __package__), f"run_{name}"
    )
    return command
