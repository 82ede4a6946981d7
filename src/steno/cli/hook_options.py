"""The options --on and --once of `run`, `watch` and `logs`: commands that run on events."""

import argparse
import shlex
from collections.abc import Callable

from ..errors import StenoError
from ..runner.hooks import (
    EVENT_KINDS,
    FILTER_FIELDS,
    PLACEHOLDERS,
    HookQueue,
    HookSpec,
    check_placeholders,
    parse_event_filter,
)
from .options import CommandParser


def hook_help() -> str:
    """The part of a help text that lists events and placeholders."""
    events = [
        f"  {kind}{':' + ' or '.join(FILTER_FIELDS[kind]).upper() if kind in FILTER_FIELDS else ''}"
        for kind in EVENT_KINDS
    ]
    placeholders = [
        f"  {{{name}}}{' ' * (12 - len(name))}{text}" for name, text in PLACEHOLDERS.items()
    ]
    return "\n".join(
        [
            "COMMAND of --on and --once is split like a shell command and run without a shell.",
            "It gets the event as JSON on stdin; its output goes to stderr. Commands run one after",
            "another. EVENT can have a filter: patterns with * and ?, separated by commas.",
            "",
            "events, with the field that a filter matches:",
            *events,
            "",
            "placeholders in COMMAND:",
            *placeholders,
        ]
    )


def add_hook_options(parser: CommandParser, reference: str = "steno watch --help") -> None:
    """--on and --once. `reference` says where events and placeholders are listed."""
    group = parser.add_argument_group(f"hooks (events and placeholders: {reference})")
    group.add_argument(
        "--on",
        nargs=2,
        action="append",
        default=[],
        metavar=("EVENT", "COMMAND"),
        help="run COMMAND on each matching event, e.g. file_change:*.py 'ruff check {path}'",
    )
    group.add_argument(
        "--once",
        nargs=2,
        action="append",
        default=[],
        metavar=("EVENT", "COMMAND"),
        help="run COMMAND on the first matching event only",
    )


def parse_hooks(options: argparse.Namespace) -> list[HookSpec]:
    """The hooks of the command line; StenoError for a bad event or command."""
    hooks = [_parse_hook("--on", event, command) for event, command in options.on]
    return [*hooks, *(_parse_hook("--once", event, command) for event, command in options.once)]


def _parse_hook(option: str, event: str, command: str) -> HookSpec:
    try:
        event_filter = parse_event_filter(event)
        argv = tuple(shlex.split(command))
        check_placeholders(argv)
    except StenoError as error:
        raise StenoError(f"{option}: {error}") from None
    except ValueError as error:  # unbalanced quotes
        raise StenoError(f"{option} {event}: {error} in {command!r}") from None
    if not argv:
        raise StenoError(f"{option} {event}: empty command")
    return HookSpec(event_filter, argv, first_match_only=option == "--once")


def finish_hooks(queue: HookQueue | None, warn: Callable[[str], None]) -> bool:
    """Wait for the commands; True if one failed or was not run."""
    if queue is None:
        return False
    queue.finish()
    if queue.dropped_count:
        warn(f"{queue.dropped_count} events dropped: too many commands waiting (--on)")
    return bool(queue.failed_count or queue.dropped_count)
