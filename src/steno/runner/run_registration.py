"""A task seen from outside while it goes on: where it is, what it does, and what others may ask of it.

`attend` registers the runs of a task; `recover` sees to those whose steno was killed, or could not book them. A task goes on
as well where it cannot be registered: that is one warning, and the task is then not steered.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..analysis.live_state import LiveState
from ..analysis.usage import nano_to_usd
from ..codec.redact import redact_and_truncate
from ..config.data_dir import live_folder
from ..errors import StenoError
from ..event import Event
from ..ledger.queries.runs import find_run
from ..ledger.run_record import finish_lost_task
from ..ledger.store import Store, ledger_location
from ..pricing import price
from ..process import terminate_orphans
from ..process.process_table import start_time_of
from . import run_registry as marks
from .attempt import AgentRun
from .control_socket import ControlSocket, Reply, send_request
from .run_registry import RunInfo, active_runs, lost_runs
from .task import Task

__all__ = [
    "RunInfo",
    "RunRegistration",
    "active_runs",
    "lost_runs",
    "recover_runs",
    "register",
    "send_request",
]

MAX_SHOWN_PROMPT_CHARS = 200  # characters of a prompt that its mark shows


def register(task: Task) -> "RunRegistration":
    """Register each run of a task while it goes on, and do what is asked from outside. Called before it is started."""
    return RunRegistration(task)


class RunRegistration:
    """A task, as others see it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._run_info: RunInfo | None = None
        self._control_socket: ControlSocket | None = None
        self._live_state = LiveState(task.agent.context_window)
        self._tracked_run_id: str | None = None  # the run that is being looked at
        self._registered_run_id: str | None = (
            None  # the run that was registered last, or could not be
        )
        task.watchers.append(self._on_task_changed)
        task.sinks.append(self._on_events)

    # -- the mark ------------------------------------------------------------------------------------------------

    def _on_task_changed(self) -> None:
        """An attempt is about to begin, or has begun, a wait begins, or all is over."""
        run = self._task.run
        if self._task.is_finished or run is None:
            self.close()
        elif self._registered_run_id != run.id:
            self.close()
            self._register_run(run)
        else:
            pid = run.child.pid if run.child is not None else None
            self._update_run_info(waits_until=self._task.waits_until, agent_pid=pid)

    def _register_run(self, run: AgentRun) -> None:
        self._registered_run_id = run.id
        try:
            wire = self._control_socket = ControlSocket(
                self._task.loop, live_folder() / f"{run.id}.sock", self._handle_request
            )
            self._run_info = self._build_run_info(run, str(wire.path))
            marks.write_run_info(self._run_info)
        except (OSError, StenoError) as problem:
            run.warnings.append(f"it cannot be seen or steered from outside: {problem}")
            self.close()
            self._registered_run_id = run.id  # once is enough

    def _build_run_info(self, run: AgentRun, socket: str) -> RunInfo:
        pid = os.getpid()
        return RunInfo(
            run=run.id,
            task=self._task.id,
            agent=run.agent.name,
            host=marks.host_id(),
            steno_pid=pid,
            steno_born=start_time_of(pid) or 0,
            agent_pid=run.child.pid if run.child is not None else None,
            socket=socket,
            tape=str(run.recording_path) if run.recording_path is not None else None,
            ledger=ledger_location(self._task.setup.ledger)
            if run.recording_path is not None
            else None,
            session=run.launch_options.session_id or run.launch_options.resume,
            cwd=self._task.setup.cwd or os.getcwd(),  # noqa: PTH109
            started=run.started_at,
            steer=run.launch_options.steer,
            prompt=redact_and_truncate(run.launch_options.prompt, MAX_SHOWN_PROMPT_CHARS),
        )

    def _update_run_info(self, **more: Any) -> None:
        if self._run_info is not None and any(
            getattr(self._run_info, name) != value for name, value in more.items()
        ):
            self._run_info = msgspec.structs.replace(self._run_info, **more)
            with suppress(OSError, StenoError):  # the old one still stands
                marks.write_run_info(self._run_info)

    def close(self) -> None:
        """Nothing goes on any more. A second call does nothing."""
        if self._control_socket is not None:
            self._control_socket.close()
        if self._run_info is not None and self._task.has_pending_write(self._run_info.run):
            self._update_run_info(
                over=True, socket=None, agent_pid=None, waits_until=None
            )  # for `recover`
        elif self._run_info is not None:
            with suppress(StenoError):
                marks.remove_run_info(self._run_info)
        self._control_socket = self._run_info = self._registered_run_id = None

    # -- what it does --------------------------------------------------------------------------------------------

    def _on_events(self, run: AgentRun, events: list[Event]) -> None:
        if run.id != self._tracked_run_id:
            self._tracked_run_id, self._live_state = run.id, LiveState(run.agent.context_window)
        self._live_state.add(events)
        if self._live_state.session is not None:
            self._update_run_info(session=self._live_state.session)

    def _status(self) -> Reply:
        task, glance = self._task, self._live_state
        run, waits = task.run, task.waits_until
        found: Reply = {
            "ok": True,
            "state": "waiting" if waits is not None else glance.state,
            "turns": glance.turns,
        }
        found["waits_s"] = None if waits is None else max(0.0, round(waits - task.now(), 3))
        found["tool"], found["target"] = glance.current_tool or (None, None)
        found["target"] = (
            redact_and_truncate(found["target"], MAX_SHOWN_PROMPT_CHARS)
            if found["target"]
            else None
        )
        if run is not None:
            run.spend.start_pricing(price)
            found |= {
                "tokens": run.spend.tokens,
                "cost_usd": nano_to_usd(run.spend.cost_nano) if run.spend.tokens else None,
            }
            heard = run.child.last_output_at if run.child is not None else task.loop.clock()
            found["silence_s"] = round(task.loop.clock() - heard, 3)
        if glance.session is not None:
            found["session_id"] = glance.session
        return {**found, "context": msgspec.to_builtins(glance.context), "model": glance.model}

    # -- what is asked of it -------------------------------------------------------------------------------------

    def _handle_request(self, message: dict[str, Any]) -> Reply:
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
        return {
            "ok": False,
            "error": 'expected {"do": "status", "stop", "kill" or "send"}, the last with a "text"',
        }

    def send(self, text: str) -> str | None:
        """Say something to the agent; why it takes no message, if it does not. For the thread that turns the loop."""
        run = self._task.run
        if run is None or run.report is not None:
            return "no attempt goes on now that could take a message"
        if not run.launch_options.steer:
            return "it takes no messages: it was not started for that (steno run --steer)"
        if not run.send(text):
            return "it takes no more messages: its turn is closed"
        return None


# -- those whose steno was killed ------------------------------------------------------------------------------------


def recover_runs(store: Store) -> list[str]:
    """See to runs whose steno was killed or could not book them: end what is left, take their tapes in, and say what was done.

    Only the ledger of the run takes it in; another one leaves the mark for that.
    """
    terminate_orphans()
    return [text for mark in lost_runs() if (text := _recover_run(store, mark)) is not None]


def _recover_run(store: Store, mark: RunInfo) -> str | None:
    run = find_run(store, mark.run)
    taped = mark.tape is not None and Path(mark.tape).exists()
    if taped and run is None and mark.ledger != ledger_location(store.name):
        return None
    open_ = taped and (run is None or run.verdict is None)
    if open_ and mark.tape is not None:
        from ..ledger.importer import import_sources

        import_sources(store, [mark.tape])
        run = find_run(store, mark.run)
    if run is not None:
        with store.transaction():
            finish_lost_task(store, mark.task, run.verdict)
    marks.remove_run_info(mark)
    why = (
        "could not be written to the ledger when it ended"
        if mark.over
        else "was cut off when its steno was killed"
    )
    return f"run {mark.run} {why}; what its tape holds is in the ledger" if open_ else None
