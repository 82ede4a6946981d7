"""`steno on`: runs a command for events of a stream or of a run. It parses and prints; `hooks` does the work."""

import argparse
import sys
from pathlib import Path

from .. import agents
from ..errors import StenoError
from ..runner.hooks import (
    EVENT_KINDS,
    FILTER_FIELDS,
    PLACEHOLDERS,
    EventFilter,
    HookSpec,
    check_placeholders,
    parse_event_filter,
    run_hook,
)
from .logs import find_recording
from .options import CommandParser
from .terminal import is_terminal, print_error, write_bytes

EXAMPLES = (
    """examples:
  claude -p "..." --output-format stream-json --verbose | steno on file_change:*.py -- ruff check {path}
  steno on --run 3f9a21c0 end -- notify-send "the agent is done" "{verdict}"
  steno on --run 3f9a21c0 --once result:success -- make deploy
  steno on tool_call:Bash,WebFetch -- sh -c 'cat >>calls.jsonl'   the event is JSON on the command's stdin

events:
"""
    + "\n".join(
        f"  {kind}{':' + ' or '.join(FILTER_FIELDS[kind]).upper() if kind in FILTER_FIELDS else ''}"
        for kind in EVENT_KINDS
    )
    + """

FILTER is one or more patterns with * and ?, apart by commas. In the command stand, each time as a part of one argument:
"""
    + "\n".join(
        f"  {{{word}}}{' ' * (12 - len(word))}{what}" for word, what in PLACEHOLDERS.items()
    )
    + """

The commands run one after the other, without a shell. What they print goes to stdout and stderr. The exit code is 0 if
all of them succeeded (or none was started), 1 if one failed, 2 for wrong use.
"""
)


def run(words: list[str]) -> int:
    """Carry out `steno on` and return its exit code."""
    options = _parse_args(words)
    wish = HookSpec(
        options.pattern,
        tuple(options.command),
        _write_stdout,
        _write_stderr,
        print_error,
        options.once,
    )
    acting = run_hook(_event_source(options), agents.get_agent(options.agent), wish)
    if acting.dropped_count:
        print_error(
            f"{acting.dropped_count} events were left out: too many were waiting for their command"
        )
    return 1 if acting.failed_count or acting.dropped_count else 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "on", "Run a command when something happens in a stream or in a run.", EXAMPLES
    )
    parser.usage = "steno on [OPTIONS] EVENT[:FILTER] -- COMMAND [ARGUMENTS]"
    parser.add_argument("event", metavar="EVENT[:FILTER]", help="what must happen")
    parser.add_argument(
        "--run",
        metavar="ID",
        help="follow this run, by the beginning of its id, or a tape (default: stdin)",
    )
    parser.add_argument("--once", action="store_true", help="only for the first event that fits")
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help="the agent that writes the stream (default: told by the bytes)",
    )
    parser.add_ledger(can_import=False)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    options.command = words[end + 1 :]
    if not options.command:
        parser.error("no command: what follows -- is run")
    options.pattern = _parse_pattern(options)
    if options.run is None and is_terminal(sys.stdin):
        parser.error("nothing to read: send an agent's stream to stdin, or give --run ID")
    return options


def _parse_pattern(options: argparse.Namespace) -> EventFilter:
    check_placeholders(options.command)
    return parse_event_filter(options.event)


def _event_source(options: argparse.Namespace) -> Path | int:
    if options.run is not None:
        return find_recording(options.run, options.ledger)
    if sys.stdin is None:
        raise StenoError("stdin is closed: give --run ID, or send an agent's stream to stdin")
    return sys.stdin.fileno()


def _write_stdout(data: bytes) -> None:
    write_bytes(data)
    sys.stdout.buffer.flush()


def _write_stderr(data: bytes) -> None:
    if sys.stderr is not None:
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
