"""`steno on`: runs a command for events of a stream or of a run. It parses and prints; `hooks` does the work."""

import argparse
import sys
from pathlib import Path

from .. import agents
from ..hooks.acting import Wish
from ..hooks.follow import act
from ..hooks.match import ABOUT, KINDS, WORDS, Pattern, check, pattern
from ..report import StenoError
from .options import Parser
from .tail import tape_of
from .terminal import complain, is_terminal, put_bytes

EXAMPLES = (
    """examples:
  claude -p "..." --output-format stream-json --verbose | steno on file_change:*.py -- ruff check {path}
  steno on --run 3f9a21c0 end -- notify-send "the agent is done" "{verdict}"
  steno on --run 3f9a21c0 --once result:success -- make deploy
  steno on tool_call:Bash,WebFetch -- sh -c 'cat >>calls.jsonl'   the event is JSON on the command's stdin

events:
"""
    + "\n".join(f"  {kind}{':' + ' or '.join(ABOUT[kind]).upper() if kind in ABOUT else ''}" for kind in KINDS)
    + """

FILTER is one or more patterns with * and ?, apart by commas. In the command stand, each time as a part of one argument:
"""
    + "\n".join(f"  {{{word}}}{' ' * (12 - len(word))}{what}" for word, what in WORDS.items())
    + """

The commands run one after the other, without a shell. What they print goes to stdout and stderr. The exit code is 0 if
all of them succeeded (or none was started), 1 if one failed, 2 for wrong use.
"""
)


def run(words: list[str]) -> int:
    """Carry out `steno on` and return its exit code."""
    options = _options(words)
    wish = Wish(options.pattern, tuple(options.command), _out, _err, complain, options.once)
    acting = act(_source(options), agents.named(options.agent), wish)
    if acting.lost:
        complain(f"{acting.lost} events were left out: too many were waiting for their command")
    return 1 if acting.failed or acting.lost else 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("on", "Run a command when something happens in a stream or in a run.", EXAMPLES)
    parser.usage = "steno on [OPTIONS] EVENT[:FILTER] -- COMMAND [ARGUMENTS]"
    parser.add_argument("event", metavar="EVENT[:FILTER]", help="what must happen")
    parser.add_argument("--run", metavar="ID", help="follow this run, by the beginning of its id, or a tape (default: stdin)")
    parser.add_argument("--once", action="store_true", help="only for the first event that fits")
    parser.add_argument("--agent", metavar="NAME", help="the agent that writes the stream (default: told by the bytes)")
    parser.add_ledger(imports=False)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    options.command = words[end + 1 :]
    if not options.command:
        parser.error("no command: what follows -- is run")
    options.pattern = _pattern(options)
    if options.run is None and is_terminal(sys.stdin):
        parser.error("nothing to read: send an agent's stream to stdin, or give --run ID")
    return options


def _pattern(options: argparse.Namespace) -> Pattern:
    check(options.command)
    return pattern(options.event)


def _source(options: argparse.Namespace) -> Path | int:
    if options.run is not None:
        return tape_of(options.run, options.ledger)
    if sys.stdin is None:
        raise StenoError("stdin is closed: give --run ID, or send an agent's stream to stdin")
    return sys.stdin.fileno()


def _out(data: bytes) -> None:
    put_bytes(data)
    sys.stdout.buffer.flush()


def _err(data: bytes) -> None:
    if sys.stderr is not None:
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
