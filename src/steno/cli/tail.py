"""`steno tail`: follows runs from another terminal, or tells one again that is over. It reads tapes and prints.

The tapes are the only thing that it looks at: a run does not know that it is followed.
"""

import argparse
import sys
import time
from collections import deque
from contextlib import suppress
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
from ..supervise.marks import find, living
from ..supervise.place import home
from ..tape import Growing
from ..tick import Tick
from .options import Parser
from .steered import fitting, has_ledger, shortened
from .terminal import complain, look, put, put_bytes, put_json

EXAMPLES = """examples:
  steno tail                           the run that was begun last, of those that go on
  steno tail 3f9a21c0                  what happens, one event to a line
  steno tail --all                     all that go on, and those that begin meanwhile; each line with its run
  steno tail -n 20 3f9a21c0            of what has happened already, only the last 20 lines
  steno tail --raw 3f9a21c0 | my-tool  the agent's own bytes
  steno tail --events 3f9a21c0 | jq -r 'select(.event == "tool_call") | .name'

ID is the beginning of a run's, a task's or a session's id (`steno ps`, `steno runs`), or a tape; several may be given.
It ends with the last run that it follows.
"""
POLL = 0.07  # seconds between two looks at the tape
encode = msgspec.json.Encoder().encode


def run(words: list[str]) -> int:
    """Carry out `steno tail` and return its exit code."""
    options = _options(words)
    tapes = [tape_of(name, options.ledger) for name in options.ids] or _living()
    if not options.all:
        tapes = tapes if options.ids else tapes[-1:]
    if not tapes:
        raise StenoError("no run goes on that could be followed; those that are over: steno runs")
    views = [View(path, options.view, options.lines) for path in tapes]
    while views and not _followed(views, options):
        time.sleep(POLL)
    return 0


def _followed(views: "list[View]", options: argparse.Namespace) -> bool:
    """Print what is new in each tape; whether nothing more will come in any."""
    if options.all:
        for path in {*_living()} - {view.path for view in views}:
            with suppress(StenoError):  # its first line is not written yet
                views.append(View(path, options.view, None))
    several = options.all or len(views) > 1
    names = shortened([view.run for view in views]) if several else {}
    open_ = [view for view in views if not view.over]
    return not [view for view in open_ if view.follow(names.get(view.run))]


def _living() -> list[Path]:
    """The tapes of the runs that go on, the oldest first."""
    return [Path(mark.tape) for mark in living() if mark.tape is not None and Path(mark.tape).exists()]


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("tail", "Follow runs that go on, or tell one again that is over.", EXAMPLES)
    what = "the beginning of its id, or a tape (default: the run that was begun last)"
    parser.add_argument("ids", nargs="*", metavar="ID", help=what)
    parser.add_argument("--all", action="store_true", help="every run that goes on, and those that begin meanwhile")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="of what is there already, only the last N lines")
    views = parser.add_argument_group("what to show (default: a feed for people)").add_mutually_exclusive_group()
    views.add_argument("--raw", dest="view", action="store_const", const="raw", help="the agent's own bytes, as they come")
    views.add_argument("--events", dest="view", action="store_const", const="events", help="the events as JSON, one to a line")
    parser.add_ledger(imports=False)
    options = parser.given(words)
    if options.lines is not None and options.view == "raw":
        parser.error("-n counts lines of a feed or of events and cannot be used with --raw")
    if options.view == "raw" and (options.all or len(options.ids) > 1):
        parser.error("--raw hands on the bytes of one run: name one")
    if options.all and options.ids:
        parser.error("--all means every run that goes on: name none")
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

    def __init__(self, path: Path, name: str | None, last: int | None) -> None:
        self.path, self._tape = path, Growing(path)
        header = self._tape.header
        if header is None:
            raise StenoError(f"{path} is not a tape")
        self.run, self.over = header.run_id or path.stem, False
        self._name, self._called = name, ""
        self._look: Look = look()
        self._feed = Feed(self._look)
        self._reading = Reading(agents.named(header.agent))
        self._reading.begin(header)
        self._held: deque[bytes | str] | None = deque(maxlen=last) if last is not None else None

    def follow(self, called: str | None) -> bool:
        """Print what is new, under this name where there are several; whether more may come."""
        self._called = called or ""
        goes_on = find(self.run) is not None  # asked before it is read
        for tick in self._tape.ticks():
            self._show(tick)
        self._flush()
        if self._tape.ended or not goes_on:
            self._end()
        return not self.over

    def _show(self, tick: Tick) -> None:
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
                    self._put(line)

    def _put(self, line: bytes | str) -> None:
        """One line, with the run that it belongs to where there are several."""
        if isinstance(line, bytes):
            whose = b'{"run_id":' + encode(self.run) + b"," if self._called else b"{"
            put_json(whose + line[1:])
        else:
            put([f"{self._called}  {line}" if self._called else line])

    def _flush(self) -> None:
        """All that was there is read: what was held back is printed, and all of it is seen."""
        held, self._held = self._held, None
        for line in held or ():
            self._put(line)
        sys.stdout.flush()

    def _end(self) -> None:
        """Nothing more will come."""
        self.over = True
        if self._name != "raw":
            events = self._reading.end()
            self._reading.fold.add(events)
            self._print(events)
        if self._name is None:
            verdict = self._reading.report().verdict
            self._put(f"{'':10}{'ended':9} {self._look.paint(verdict, f'bold {colour_of(verdict)}')}")
        sys.stdout.flush()
        if not self._tape.ended:
            complain(f"{self.run}: the tape is cut here: whoever wrote it was killed")


def _pass_on(tick: Tick) -> None:
    if tick.code == "out":
        put_bytes(tick.data)
    elif tick.code == "err" and sys.stderr is not None:
        sys.stdout.flush()
        sys.stderr.buffer.write(tick.data)
        sys.stderr.flush()
