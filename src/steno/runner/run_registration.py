"""Registration of a task's runs while it is active, their control from outside, crash recovery.

A run that cannot be registered continues with one warning, and cannot be controlled.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..analysis.live_state import LiveState
from ..analysis.usage import nano_to_usd
from ..codec.redact import redact_and_truncate
from ..config.files import live_folder
from ..errors import StenoError
from ..event import Event
from ..ledger.queries.runs import find_run
from ..ledger.run_record import finish_lost_task
from ..ledger.store import Store, ledger_location
from ..pricing import price
from ..process import terminate_orphans
from ..process.process_tree import start_time_of
from .attempt import AgentRun
from .run_registry import (
    ControlSocket,
    Reply,
    RunInfo,
    active_runs,
    host_id,
    lost_runs,
    remove_run_info,
    send_request,
    write_run_info,
)
from .task import Task

__all__ = [
    "RunInfo",
    "RunRegistration",
    "active_runs",
    "lost_runs",
    "recover_runs",
    "send_request",
]

MAX_SHOWN_PROMPT_CHARS = 200  # in the registry entry


class RunRegistration:
    """Registers each run of a task and answers requests. Create it before the task starts."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._run_info: RunInfo | None = None
        self._control_socket: ControlSocket | None = None
        self._live_state = LiveState()
        self._tracked_run_id: str | None = None  # the run that the live state is about
        self._registered_run_id: str | None = None  # also if the registration failed
        task.watchers.append(self._on_task_changed)
        task.sinks.append(self._on_events)

    # -- registry entry --------------------------------------------------------------------------

    def _on_task_changed(self) -> None:
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
            self._control_socket = ControlSocket(
                self._task.loop, live_folder() / f"{run.id}.sock", self._handle_request
            )
            pid = os.getpid()
            options = run.launch_options
            is_recorded = run.recording_path is not None
            self._run_info = RunInfo(
                run=run.id,
                task=self._task.id,
                agent=run.agent.name,
                host=host_id(),
                steno_pid=pid,
                steno_born=start_time_of(pid) or 0,
                agent_pid=run.child.pid if run.child is not None else None,
                socket=str(self._control_socket.path),
                tape=str(run.recording_path) if is_recorded else None,
                ledger=ledger_location(self._task.setup.ledger) if is_recorded else None,
                session=options.session_id or options.resume,
                cwd=self._task.setup.cwd or os.getcwd(),  # noqa: PTH109  # the text as it is
                started=run.started_at,
                steer=options.steer,
                prompt=redact_and_truncate(options.prompt, MAX_SHOWN_PROMPT_CHARS),
            )
            write_run_info(self._run_info)
        except (OSError, StenoError) as error:
            run.warnings.append(
                f"run not registered; steno ps, stop and send won't see it: {error}"
            )
            self.close()
            self._registered_run_id = run.id  # warn once

    def _update_run_info(self, **changes: Any) -> None:
        info = self._run_info
        if info is None or all(getattr(info, name) == value for name, value in changes.items()):
            return
        self._run_info = msgspec.structs.replace(info, **changes)
        with suppress(OSError, StenoError):  # the old entry stays
            write_run_info(self._run_info)

    def close(self) -> None:
        """Remove the entry, or mark it for recovery. A second call does nothing."""
        pending = self._task.ledger_writer.pending_runs
        if self._control_socket is not None:
            self._control_socket.close()
        if self._run_info is not None and self._run_info.run in pending:
            self._update_run_info(over=True, socket=None, agent_pid=None, waits_until=None)
        elif self._run_info is not None:
            with suppress(StenoError):
                remove_run_info(self._run_info)
        self._control_socket = None
        self._run_info = None
        self._registered_run_id = None

    # -- live state ------------------------------------------------------------------------------

    def _on_events(self, run: AgentRun, events: list[Event]) -> None:
        if run.id != self._tracked_run_id:
            self._tracked_run_id = run.id
            self._live_state = LiveState(run.accumulator, run.usage_accumulator)
        if self._live_state.session is not None:
            self._update_run_info(session=self._live_state.session)

    def _status(self) -> Reply:
        task = self._task
        state = self._live_state
        waits_until = task.waits_until
        is_waiting = waits_until is not None
        waits_s = None if waits_until is None else max(0.0, round(waits_until - task.now(), 3))
        tool, target = state.current_tool or (None, None)
        reply: Reply = {
            "ok": True,
            "state": "waiting" if is_waiting else state.state,
            "turns": state.turns,
            "waits_s": waits_s,
            "tool": tool,
            "target": redact_and_truncate(target, MAX_SHOWN_PROMPT_CHARS) if target else None,
        }
        if task.run is not None:
            reply |= self._spend_and_silence(task.run)
        if state.session is not None:
            reply["session_id"] = state.session
        return {**reply, "context": msgspec.to_builtins(state.context), "model": state.model}

    def _spend_and_silence(self, run: AgentRun) -> Reply:
        run.spend.start_pricing(price)
        now = self._task.loop.clock()
        last_output_at = run.child.last_output_at if run.child is not None else now
        return {
            "tokens": run.spend.tokens,
            "cost_usd": nano_to_usd(run.spend.cost_nano) if run.spend.tokens else None,
            "silence_s": round(now - last_output_at, 3),
        }

    # -- requests --------------------------------------------------------------------------------

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
                error = self.send(text)
                return {"ok": True} if error is None else {"ok": False, "error": error}
        return {
            "ok": False,
            "error": 'expected {"do": ...} with status, stop, kill, or send with a "text"',
        }

    def send(self, text: str) -> str | None:
        """Send a message to the agent; the error if it accepts none. For the loop's thread only."""
        run = self._task.run
        if run is None or run.report is not None:
            return "no active attempt to send the message to"
        if not run.launch_options.steer:
            return "the run accepts no messages; start it with steno run --steer"
        if not run.send(text):
            return "the run accepts no more messages: its turn has ended"
        return None


# -- recovery --------------------------------------------------------------------------------------


def recover_runs(store: Store) -> list[str]:
    """Recover lost runs: terminate their processes and import their recordings; messages.

    A run of another ledger is left for that one.
    """
    terminate_orphans()
    return [text for info in lost_runs() if (text := _recover_run(store, info)) is not None]


def _recover_run(store: Store, info: RunInfo) -> str | None:
    run = find_run(store, info.run)
    has_recording = info.tape is not None and Path(info.tape).exists()
    if has_recording and run is None and info.ledger != ledger_location(store.name):
        return None
    is_incomplete = has_recording and (run is None or run.verdict is None)
    if is_incomplete and info.tape is not None:
        from ..ledger.importer import import_sources  # lazy: loads every reader

        import_sources(store, [info.tape])
        run = find_run(store, info.run)
    if run is not None:
        with store.transaction():
            finish_lost_task(store, info.task, run.verdict)
    remove_run_info(info)
    if not is_incomplete:
        return None
    cause = (
        "could not be written to the ledger"
        if info.over
        else "was lost: its steno process was killed"
    )
    return f"run {info.run} {cause}; recovered from its recording"
