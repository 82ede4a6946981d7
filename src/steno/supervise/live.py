"""A task seen from outside while it goes on: where it is, what it does, and what others may ask of it.

`attend` registers the runs of a task; `recover` sees to those whose steno was killed, or could not book them. A task goes on
as well where it cannot be registered: that is one warning, and the task is then not steered.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..event import Event
from ..glance import Glance
from ..ledger.store import Store, address
from ..meter import dollars
from ..prices import price
from ..process import sweep
from ..process.kin import born
from ..redact import clipped
from ..report import StenoError
from . import marks
from .marks import Live, living, lost
from .place import live_folder
from .run import Run
from .task import Task
from .wire import Answer, Wire, ask

__all__ = ["Live", "Presence", "ask", "attend", "living", "lost", "recover"]

PROMPT = 200  # characters of a prompt that its mark shows


def attend(task: Task) -> "Presence":
    """Register each run of a task while it goes on, and do what is asked from outside. Called before it is started."""
    return Presence(task)


class Presence:
    """A task, as others see it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._mark: Live | None = None
        self._wire: Wire | None = None
        self._glance = Glance(task.agent.window)
        self._seen: str | None = None  # the run that is being looked at
        self._entered: str | None = None  # the run that was registered last, or could not be
        task.watchers.append(self._changed)
        task.sinks.append(self._sink)

    # -- the mark ------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """An attempt is about to begin, or has begun, a wait begins, or all is over."""
        run = self._task.run
        if self._task.over or run is None:
            self.close()
        elif self._entered != run.id:
            self.close()
            self._enter(run)
        else:
            pid = run.child.pid if run.child is not None else None
            self._update(waits_until=self._task.waits_until, agent_pid=pid)

    def _enter(self, run: Run) -> None:
        self._entered = run.id
        try:
            wire = self._wire = Wire(self._task.loop, live_folder() / f"{run.id}.sock", self._obey)
            self._mark = self._marked(run, str(wire.path))
            marks.write(self._mark)
        except (OSError, StenoError) as problem:
            run.warnings.append(f"it cannot be seen or steered from outside: {problem}")
            self.close()
            self._entered = run.id  # once is enough

    def _marked(self, run: Run, socket: str) -> Live:
        pid = os.getpid()
        return Live(
            run=run.id,
            task=self._task.id,
            agent=run.agent.name,
            host=marks.here(),
            steno_pid=pid,
            steno_born=born(pid) or 0,
            agent_pid=run.child.pid if run.child is not None else None,
            socket=socket,
            tape=str(run.tape) if run.tape is not None else None,
            ledger=address(self._task.setup.ledger) if run.tape is not None else None,
            session=run.ask.session_id or run.ask.resume,
            cwd=self._task.setup.cwd or os.getcwd(),  # noqa: PTH109
            started=run.began,
            steer=run.ask.steer,
            prompt=clipped(run.ask.prompt, PROMPT),
        )

    def _update(self, **more: Any) -> None:
        if self._mark is not None and any(getattr(self._mark, name) != value for name, value in more.items()):
            self._mark = msgspec.structs.replace(self._mark, **more)
            with suppress(OSError, StenoError):  # the old one still stands
                marks.write(self._mark)

    def close(self) -> None:
        """Nothing goes on any more. A second call does nothing."""
        if self._wire is not None:
            self._wire.close()
        if self._mark is not None and self._task.owes(self._mark.run):
            self._update(over=True, socket=None, agent_pid=None, waits_until=None)  # for `recover`
        elif self._mark is not None:
            with suppress(StenoError):
                marks.remove(self._mark)
        self._wire = self._mark = self._entered = None

    # -- what it does --------------------------------------------------------------------------------------------

    def _sink(self, run: Run, events: list[Event]) -> None:
        if run.id != self._seen:
            self._seen, self._glance = run.id, Glance(run.agent.window)
        self._glance.add(events)
        if self._glance.session is not None:
            self._update(session=self._glance.session)

    def _status(self) -> Answer:
        task, glance = self._task, self._glance
        run, waits = task.run, task.waits_until
        found: Answer = {"ok": True, "state": "waiting" if waits is not None else glance.state, "turns": glance.turns}
        found["waits_s"] = None if waits is None else max(0.0, round(waits - task.now(), 3))
        found["tool"], found["target"] = glance.tool or (None, None)
        found["target"] = clipped(found["target"], PROMPT) if found["target"] else None
        if run is not None:
            run.spend.follow(price)
            found |= {"tokens": run.spend.tokens, "cost_usd": dollars(run.spend.nano) if run.spend.tokens else None}
            heard = run.child.heard if run.child is not None else task.loop.clock()
            found["silence_s"] = round(task.loop.clock() - heard, 3)
        if glance.session is not None:
            found["session_id"] = glance.session
        return {**found, "context": msgspec.to_builtins(glance.context), "model": glance.model}

    # -- what is asked of it -------------------------------------------------------------------------------------

    def _obey(self, message: dict[str, Any]) -> Answer:
        match message:
            case {"do": "status"}:
                return self._status()
            case {"do": "stop"}:
                self._task.stop("interrupted")
                return {"ok": True}
            case {"do": "kill"}:
                self._task.kill()
                return {"ok": True}
            case {"do": "send", "text": str(text)}:
                wrong = self.send(text)
                return {"ok": True} if wrong is None else {"ok": False, "error": wrong}
        return {"ok": False, "error": 'expected {"do": "status", "stop", "kill" or "send"}, the last with a "text"'}

    def send(self, text: str) -> str | None:
        """Say something to the agent; why it takes no message, if it does not. For the thread that turns the loop."""
        run = self._task.run
        if run is None or run.report is not None:
            return "no attempt goes on now that could take a message"
        if not run.ask.steer:
            return "it takes no messages: it was not started for that (steno run --steer)"
        if not run.send(text):
            return "it takes no more messages: its turn is closed"
        return None


# -- those whose steno was killed ------------------------------------------------------------------------------------


def recover(store: Store) -> list[str]:
    """See to runs whose steno was killed or could not book them: end what is left, take their tapes in, and say what was done.

    Only the ledger of the run takes it in; another one leaves the mark for that.
    """
    sweep()
    return [text for mark in lost() if (text := _taken_in(store, mark)) is not None]


def _taken_in(store: Store, mark: Live) -> str | None:
    rows = store.rows("SELECT verdict FROM runs WHERE id = ?", (mark.run,))
    taped = mark.tape is not None and Path(mark.tape).exists()
    if taped and not rows and mark.ledger != address(store.name):
        return None
    open_ = taped and (not rows or rows[0][0] is None)
    if open_ and mark.tape is not None:
        from ..ledger.pull import pull

        pull(store, [mark.tape])
        rows = store.rows("SELECT verdict FROM runs WHERE id = ?", (mark.run,))
    if rows:
        whole = "UPDATE tasks SET verdict = ?, ended_at = (SELECT max(ended_at) FROM runs WHERE task = ?) WHERE id = ?"
        with store.writing():
            store.change(f"{whole} AND verdict IS NULL", (rows[0][0], mark.task, mark.task))
    marks.remove(mark)
    why = "could not be written to the ledger when it ended" if mark.over else "was cut off when its steno was killed"
    return f"run {mark.run} {why}; what its tape holds is in the ledger" if open_ else None
