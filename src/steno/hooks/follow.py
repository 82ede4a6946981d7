"""Where the events come from that commands are run for: a stream on a descriptor, or the tape of a run. It turns with the loop.

A stream is read to its end also when no event is wanted any more: whoever writes it must not fail because of us.
"""

import os
from pathlib import Path

from .. import agents
from ..agents import Agent
from ..process import Loop
from ..reading import Reading
from ..report import StenoError
from ..supervise.marks import find
from ..tape import Growing
from .acting import Acting, Wish

CHUNK = 1 << 16  # bytes a read
POLL = 0.07  # seconds between two looks at a tape


def act(source: Path | int, agent: Agent | None, wish: Wish) -> Acting:
    """Do what is wished for the events of a tape or of a stream on a descriptor, until it and all commands are over."""
    with Loop() as loop:
        events = Following(loop, source) if isinstance(source, Path) else Stream(loop, source, agent)
        acting = Acting(loop, wish, events.reading)
        events.begin(acting)
        loop.run(until=lambda: events.over and acting.idle)
    return acting


class Stream:
    """A stream on a descriptor. `over` when all of it was read."""

    def __init__(self, loop: Loop, descriptor: int, agent: Agent | None) -> None:
        self.reading, self.over = Reading(agent), False
        self._loop, self._descriptor = loop, descriptor
        self._acting: Acting | None = None
        self._watched = False

    def begin(self, acting: Acting) -> None:
        """Hand on what comes from now on."""
        self._acting = acting
        try:
            self._loop.watch(self._descriptor, self._read)
            self._watched = True
        except PermissionError:  # a file: it is always ready, and cannot be waited for
            self._loop.soon(self._read)

    def _read(self) -> None:
        acting = self._acting
        if acting is None:
            return
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return
        if data:
            acting.add(() if acting.done else self.reading.feed(data))
            if not self._watched:
                self._loop.soon(self._read)
            return
        if self._watched:
            self._loop.unwatch(self._descriptor)
        self.over = True
        acting.add(self.reading.close())
        acting.end()


class Following:
    """The tape of a run that goes on, or of one that is over."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self._tape = Growing(path)
        header = self._tape.header
        if header is None:
            raise StenoError(f"{path}: not a tape")
        self.reading, self.over = Reading(agents.named(header.agent)), False
        self.reading.begin(header)
        self._run, self._loop = header.run_id, loop
        self._acting: Acting | None = None

    def begin(self, acting: Acting) -> None:
        """Hand on what is there, and what comes from now on."""
        self._acting = acting
        self._look()

    def _look(self) -> None:
        acting = self._acting
        if acting is None:
            return
        goes_on = self._run is not None and find(self._run) is not None  # asked before it is read
        for tick in self._tape.ticks():
            events = self.reading.tick(tick)
            self.reading.fold.add(events)
            acting.add(events)
        if goes_on and not self._tape.ended and not acting.done:
            self._loop.after(POLL, self._look)
            return
        self.over = True
        rest = self.reading.end()
        self.reading.fold.add(rest)
        acting.add(rest)
        acting.end()
