"""`steno tail`: follows a run from another terminal, or tells one again that is over. It reads the tape and prints.

The tape is the only thing that it looks at: the run does not know that it is followed.
"""

import argparse
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from .. import agents
from ..event import Event
from ..ledger.ask import runs
from ..ledger.store import open_ledger
from ..reading import Reading
from ..report import StenoError
from ..screen.feed import Feed
from ..screen.look import Look
from ..screen.words import colour_of
from ..supervise.marks import find
from ..supervise.place import home
from ..tape import Growing
from ..tick import Tick
from .options import Parser
from .steered import fitting, has_ledger
from .terminal import complain, look, put, put_bytes

EXAMPLES = """examples:
  steno tail 3f9a21c0                  what happens, one event to a line
  steno tail -n 20 3f9a21c0            of what has happened already, only the last 20 lines
  steno tail --raw 3f9a21c0 | my-tool  the agent's own bytes
  steno tail --events 3f9a21c0 | jq -r 'select(.event == "tool_call") | .name'

ID is the beginning of a run's, a task's or a session's id (`steno ps`, `steno runs`), or a tape. It ends with the run.
"""
POLL = 0.07  # seconds between two looks at the tape
encode = msgspec.json.Encoder().encode


def run(words: list[str]) -> int:
    """Carry out `steno tail` and return its exit code."""
    options = _options(words)
    growing = Growing(tape_of(options.id, options.ledger))
    if growing.header is None:
        raise StenoError(f"{options.id}: {growing.path} is not a tape")
    view = View(growing, options.view, options.lines)
    while True:
        goes_on = growing.header.run_id is not None and find(growing.header.run_id) is not None  # asked before it is read
        for tick in growing.ticks():
            view.show(tick)
        view.flush()
        if growing.ended or not goes_on:
            break
        time.sleep(POLL)
    view.end()
    if not growing.ended:
        complain(f"{growing.header.run_id or options.id}: the tape is cut here: whoever wrote it was killed")
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("tail", "Follow a run that goes on, or tell one again that is over.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="the beginning of its id, or a tape")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="of what is there already, only the last N lines")
    views = parser.add_argument_group("what to show (default: a feed for people)").add_mutually_exclusive_group()
    views.add_argument("--raw", dest="view", action="store_const", const="raw", help="the agent's own bytes, as they come")
    views.add_argument("--events", dest="view", action="store_const", const="events", help="the events as JSON, one to a line")
    parser.add_ledger(imports=False)
    options = parser.given(words)
    if options.lines is not None and options.view == "raw":
        parser.error("-n counts lines of a feed or of events and cannot be used with --raw")
    return options


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return int(text)


def tape_of(name: str, ledger: str | None) -> Path:
    """The tape that is meant: of a run that goes on, by its own name, or of a run of the ledger."""
    mark = fitting(name)
    if mark is not None:
        if mark.tape is None:
            raise StenoError(f"{mark.run}: this run is not recorded, so there is nothing to follow")
        return Path(mark.tape)
    if Path(name).is_file():
        return Path(name)
    found = sorted((home() / "tapes").glob(f"*/{name}*.steno")) if name.isalnum() else []
    if len(found) > 1:
        raise StenoError(f"{name}: several runs begin like this: {', '.join(path.stem for path in found[:5])}")
    return found[0] if found else _recorded(name, ledger)


def _recorded(name: str, ledger: str | None) -> Path:
    if has_ledger(ledger):
        store = open_ledger(ledger)
        try:
            found = runs.find(store, name)
            source = runs.one(store, found[1]).source if found is not None and found[0] == "runs" else None
        finally:
            store.close()
        if source is not None:
            return Path(source)
    raise StenoError(f"{name}: neither a run that goes on, nor the beginning of an id of one that was recorded, nor a tape")


class View:
    """What is printed of a tape. `last`: of what is there at first, only so many lines."""

    def __init__(self, tape: Growing, name: str | None, last: int | None) -> None:
        header = tape.header
        self._name = name
        self._look: Look = look()
        self._feed = Feed(self._look)
        self._reading = Reading(agents.named(header.agent if header is not None else None))
        if header is not None:
            self._reading.begin(header)
        self._held: deque[bytes | str] | None = deque(maxlen=last) if last is not None else None

    def show(self, tick: Tick) -> None:
        """Print what a tick means."""
        if self._name == "raw":
            _pass_on(tick)
            return
        events = self._reading.tick(tick)
        self._reading.fold.add(events)
        self._print(events)

    def _print(self, events: list[Event]) -> None:
        for event in events:
            for line in [encode(event)] if self._name == "events" else self._feed.lines(event):
                if self._held is not None:
                    self._held.append(line)
                else:
                    _put(line)

    def flush(self) -> None:
        """All that was there is read: what was held back is printed, and all of it is seen."""
        held, self._held = self._held, None
        for line in held or ():
            _put(line)
        sys.stdout.flush()

    def end(self) -> None:
        """Nothing more will come."""
        if self._name == "raw":
            return
        events = self._reading.end()
        self._reading.fold.add(events)
        self._print(events)
        if self._name is None:
            verdict = self._reading.report().verdict
            put([f"{'':10}{'ended':9} {self._look.paint(verdict, f'bold {colour_of(verdict)}')}"])


def _put(line: bytes | str) -> None:
    if isinstance(line, bytes):
        put_bytes(line + b"\n")
    else:
        put([line])


def _pass_on(tick: Tick) -> None:
    if tick.code == "out":
        put_bytes(tick.data)
    elif tick.code == "err" and sys.stderr is not None:
        sys.stdout.flush()
        sys.stderr.buffer.write(tick.data)
        sys.stderr.flush()
