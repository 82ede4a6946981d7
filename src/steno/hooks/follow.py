"""Where the events come from that commands are run for: a stream on a descriptor, or the tape of a run. It turns with the loop.

A stream is read to its end also when no event is wanted any more: whoever writes it must not fail because of us.
"""

import os
from pathlib import Path

from .. import agents
from ..agents import Agent
from ..process import ProcessLoop
from ..reading import RunParser
from ..report import StenoError
from ..supervise.marks import get_active_run
from ..tape import RecordingFollower
from .acting import HookRunner, HookSpec

READ_CHUNK_BYTES = 1 << 16  # bytes a read
POLL_SECONDS = 0.07  # seconds between two looks at a tape


def run_hook(source: Path | int, agent: Agent | None, wish: HookSpec) -> HookRunner:
    """Do what is wished for the events of a tape or of a stream on a descriptor, until it and all commands are over."""
    with ProcessLoop() as loop:
        events = RecordingSource(loop, source) if isinstance(source, Path) else StreamSource(loop, source, agent)
        acting = HookRunner(loop, wish, events.parser)
        events.start(acting)
        loop.run(until=lambda: events.is_finished and acting.is_idle)
    return acting


class StreamSource:
    """A stream on a descriptor. `over` when all of it was read."""

    def __init__(self, loop: ProcessLoop, descriptor: int, agent: Agent | None) -> None:
        self.parser, self.is_finished = RunParser(agent), False
        self._loop, self._descriptor = loop, descriptor
        self._runner: HookRunner | None = None
        self._is_watched = False

    def start(self, acting: HookRunner) -> None:
        """Hand on what comes from now on."""
        self._runner = acting
        try:
            self._loop.watch(self._descriptor, self._read)
            self._is_watched = True
        except PermissionError:  # a file: it is always ready, and cannot be waited for
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        acting = self._runner
        if acting is None:
            return
        try:
            data = os.read(self._descriptor, READ_CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            acting.add(() if acting.is_done else self.parser.feed(data))
            if not self._is_watched:
                self._loop.call_soon(self._read)
            return
        if self._is_watched:
            self._loop.unwatch(self._descriptor)
        self.is_finished = True
        acting.add(self.parser.close())
        acting.finish()


class RecordingSource:
    """The tape of a run that goes on, or of one that is over."""

    def __init__(self, loop: ProcessLoop, path: Path) -> None:
        self._recording = RecordingFollower(path)
        header = self._recording.header
        if header is None:
            raise StenoError(f"{path}: not a tape")
        self.parser, self.is_finished = RunParser(agents.get_agent(header.agent)), False
        self.parser.begin_recording(header)
        self._run_id, self._loop = header.run_id, loop
        self._runner: HookRunner | None = None

    def start(self, acting: HookRunner) -> None:
        """Hand on what is there, and what comes from now on."""
        self._runner = acting
        self._poll()

    def _poll(self) -> None:
        acting = self._runner
        if acting is None:
            return
        goes_on = self._run_id is not None and get_active_run(self._run_id) is not None  # asked before it is read
        for tick in self._recording.records():
            events = self.parser.interpret_record(tick)
            self.parser.accumulator.add(events)
            acting.add(events)
        if goes_on and not self._recording.is_ended and not acting.is_done:
            self._loop.call_later(POLL_SECONDS, self._poll)
            return
        self.is_finished = True
        rest = self.parser.flush()
        self.parser.accumulator.add(rest)
        acting.add(rest)
        acting.finish()
