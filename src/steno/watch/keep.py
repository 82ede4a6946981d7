"""What is kept of a stream that passes: a tape, a mark while it goes on, a row in the ledger at its end.

The tape is written by a thread of its own, so that a slow disk delays nobody. The ledger is opened when the stream is over.
"""

import os
import signal
import time
from pathlib import Path

from .. import event as ev
from ..agents import CLAUDE, Agent
from ..ledger.rows import Rows
from ..process.kin import born
from ..report import LedgerError, Report, StenoError
from ..spool import Spool
from ..supervise import marks
from ..supervise.place import run_id, tape_path
from ..tape import Recorder
from ..tick import Header, Tick
from .tap import Tap

WAITING = 64 << 20  # bytes that may wait for the disk: a stalled one costs the tape, not the stream
PATIENCE = 30.0  # seconds at the end for the disk


class Keep:
    """The record of one stream. StenoError: it cannot be made, and nothing was."""

    def __init__(self, agent: Agent | None, ledger: str | None) -> None:
        self.warnings: list[str] = []
        self._agent, self._ledger = agent, ledger
        self._began, self._clock = time.time(), time.monotonic()
        self.id = run_id(self._began)
        self.tape: Path = tape_path(self.id, self._began)
        cwd = os.getcwd()  # noqa: PTH109
        name = agent.name if agent is not None else None
        self.header = Header(agent=name, run_id=self.id, cwd=cwd, started_at=self._began)
        try:
            self._recorder = Recorder(self.tape, self.header)
        except OSError as problem:
            raise StenoError(f"{self.tape}: the tape cannot be made: {problem.strerror or problem}") from None
        self._spool: Spool[Tick] = Spool(self._recorder.write, WAITING, "steno tape")
        self._cut = False
        self._mark = self._marked(cwd)
        self._rows: Rows | None = None

    def _marked(self, cwd: str) -> marks.Live:
        """So that others can follow it (`steno tail`, `steno on`). One that cannot be written only means that they cannot."""
        pid = os.getpid()
        mark = marks.Live(
            run=self.id,
            task=self.id,
            agent=(self._agent or CLAUDE).name,
            host=marks.here(),
            steno_pid=pid,
            steno_born=born(pid) or 0,
            tape=str(self.tape),
            cwd=cwd,
            started=self._began,
        )
        try:
            marks.write(mark)
        except (OSError, StenoError) as problem:
            self.warnings.append(f"it cannot be followed from outside: {problem}")
        return mark

    # -- while it goes on ------------------------------------------------------------------------------------------

    def take(self, chunk: bytes) -> Tick:
        """Bytes that have passed, as a tick that goes to the tape."""
        return self._write(Tick(time.monotonic() - self._clock, "out", chunk))

    def add(self, events: list[ev.Event], agent: Agent) -> None:
        """Events, for the ledger, and whose they are: with the first one that is known."""
        if self._rows is None and events:
            self._rows = Rows(agent, self.id, int(self._began * 1000), self.id)
            self._rows.place = self.header.cwd
        if self._rows is not None:
            self._rows.add(events)

    def _write(self, tick: Tick) -> Tick:
        """What cannot be written cuts the tape: one with a hole would play as if it were whole."""
        if not self._cut and not self._spool.put(tick, len(tick.data)):
            self._cut = True
        return tick

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, tap: Tap) -> list[Tick]:
        """The last ticks of the tape, which is whole then."""
        after, why = time.monotonic() - self._clock, _ending(tap)
        found = [Tick(after, "note", why.encode())] if why is not None else []
        for tick in found:
            self._write(tick)
        done = self._spool.finish(PATIENCE)
        try:
            if self._cut or not done or self._spool.problem is not None:
                raise self._spool.problem or OSError("the disk did not take what came in time")
            self._recorder.close()
        except Exception as problem:
            told = getattr(problem, "strerror", None) or problem
            self.warnings.append(f"the tape is cut: {told} ({self.tape})")
            return found
        return [*found, Tick(None, "end")]

    def book(self, report: Report) -> None:
        """A row in the ledger. One that fails is told of: the tape can be imported later."""
        from ..ledger.book import Pricer
        from ..ledger.record import record
        from ..ledger.store import open_ledger

        at = int(self._began * 1000)
        rows = self._rows or Rows(self._agent or CLAUDE, self.id, at, self.id)
        try:
            store = open_ledger(self._ledger)
            try:
                with store.writing():
                    record(store, report, rows.batch(), at, Pricer())
            finally:
                store.close()
        except LedgerError as problem:
            self.warnings.append(f"the ledger is left out: {problem}; later: steno import {self.tape}")

    def close(self) -> None:
        """It is over: nobody needs to find it any more."""
        marks.remove(self._mark)


def _ending(tap: Tap) -> str | None:
    """Why a stream ended that did not end by itself."""
    if tap.signal is not None:
        return f"watch: ended by {signal.Signals(tap.signal).name}"
    if tap.gone:
        return "watch: whoever read it was gone"
    return f"watch: {tap.problem}" if tap.problem is not None else None
