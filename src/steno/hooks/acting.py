"""Runs a command for each event that is meant, one after the other, while the events go on. It never uses a shell.

The commands are started through the loop that is given, and get the event as JSON on their stdin.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from .. import event as ev
from ..process import Command, Loop
from ..reading import Reading
from ..tick import Header, Tick
from .match import END, KINDS, Pattern, Teller, filled, wants

WAITING = 16 << 20  # bytes of events whose commands may wait for their turn: beyond that events are left out, and counted
SHOWN = 200  # characters of a command that failed

encode = msgspec.json.Encoder().encode
Out = Callable[[bytes], None]


class Wish(Struct, frozen=True):
    """What is to be done, for which events. `out` and `err` get what the commands print; `say` is told what failed."""

    pattern: Pattern
    argv: tuple[str, ...]
    out: Out
    err: Out
    say: Callable[[str], None]
    once: bool = False


class Acting:
    """What is done for the events of one run."""

    def __init__(self, loop: Loop, wish: Wish, reading: Reading) -> None:
        self.wish = wish
        self.started = self.failed = self.lost = 0
        self._loop, self._reading = loop, reading
        header = reading.tape or Header()
        self._teller = Teller(reading.fold, header.run_id, header.cwd)
        self._judged = wish.pattern.kind in ("result", END) or wants(wish.argv, "verdict")
        self._waiting: deque[tuple[tuple[str, ...], bytes]] = deque()
        self._refused: set[str] = set()
        self._size = 0
        self._busy = False

    @property
    def done(self) -> bool:
        """Whether no other event is wanted."""
        return self.wish.once and (self.started > 0 or bool(self._waiting))

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing waits."""
        return not self._busy and not self._waiting

    # -- events ----------------------------------------------------------------------------------------------------

    def add(self, events: Iterable[ev.Event]) -> None:
        """Events, folded in before."""
        kind = KINDS[self.wish.pattern.kind]
        for event in events:
            if kind is not None and type(event) is kind and not self._again(event):
                self._consider(self._teller.told(event), encode(event))

    def _again(self, event: ev.Event) -> bool:
        """Whether it only repeats a refusal: an agent tells one several times."""
        if not isinstance(event, ev.PermissionDenied) or event.call is None:
            return False
        before = event.call in self._refused
        self._refused.add(event.call)
        return before

    def end(self) -> None:
        """The run is over."""
        if self.wish.pattern.kind == END:
            self._consider(self._teller.whole(END), b"")

    def _consider(self, told: dict[str, str], body: bytes) -> None:
        if self.done:
            return
        if self._judged:
            told["verdict"] = self._reading.report().verdict
        if self.wish.pattern.fits(told):
            self._ask(filled(self.wish.argv, told), body or encode(told))

    def _ask(self, argv: tuple[str, ...], body: bytes) -> None:
        if self._waiting and self._size + len(body) > WAITING:
            self.lost += 1
            return
        self._waiting.append((argv, body))
        self._size += len(body)
        self._next()

    # -- commands --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._busy or not self._waiting:
            return
        argv, body = self._waiting.popleft()
        self._size -= len(body)
        self._busy = True
        self.started += 1
        self._loop.start(Command(argv, stdin=body + b"\n"), lambda tick: self._tick(argv, tick), leave=True)

    def _tick(self, argv: tuple[str, ...], tick: Tick) -> None:
        if tick.code == "out":
            self.wish.out(tick.data)
        elif tick.code == "err":
            self.wish.err(tick.data)
        elif tick.code == "exit":
            if tick.number:
                self.failed += 1
                self.wish.say(f"{_brief(argv)}: exit code {tick.number}")
            self._busy = False
            self._next()


def _brief(argv: tuple[str, ...]) -> str:
    """A command, as far as it is worth showing: what was put in can be a whole answer."""
    text = " ".join(argv)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
