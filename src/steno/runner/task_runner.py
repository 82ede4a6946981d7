"""Tasks: one in the calling thread, or many in one thread; each registered while it is active.

A run that cannot be registered continues with one warning, and cannot be controlled.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

import msgspec

from ..analysis.live_state import LiveState
from ..analysis.usage import nano_to_usd
from ..codec.redact import redact, redact_and_truncate
from ..config.files import live_folder
from ..errors import StenoError
from ..event import Event
from ..ledger.store import ledger_location
from ..pricing import price
from ..process import ProcessLoop
from ..process.process_tree import start_time_of
from ..report import TaskReport
from .attempt import AgentRun, RunSink
from .run_registry import (
    ControlSocket,
    Reply,
    RunInfo,
    host_id,
    remove_run_info,
    write_run_info,
)
from .setup import MAX_PERMISSION_SECONDS, TaskSetup
from .task import LogFunction, Task

KILL_POLL_SECONDS = 0.05
# Three pipes, a pidfd, the recording, the control socket; two more while an agent starts.
DESCRIPTORS_PER_RUN = 8
OTHER_DESCRIPTORS = 256  # of the program itself


class TaskRunner:
    """Runs one task. `interrupt` may be called from any thread and from a signal handler.

    With a `parent`, on that loop: `start` it. Else on a loop of its own: `run` it.
    """

    def __init__(
        self,
        setup: TaskSetup,
        log: LogFunction | None = None,
        warn: LogFunction | None = None,
        parent: ProcessLoop | None = None,
    ) -> None:
        on_error = None if parent is None else self.fail
        self.loop = ProcessLoop(parent=parent, on_error=on_error)
        self.error: BaseException | None = None  # why there is no report
        self._on_done: Callable[[], None] | None = None
        try:
            self.task = Task(self.loop, setup, log=log, warn=warn)
            self.registration = RunRegistration(self.task)
        except BaseException:
            self.loop.close()
            raise
        self.interrupt_count = 0
        self.has_signal_wakeup = False  # main thread only: signals end a wait of the loop at once

    def run(self) -> TaskReport:
        """Run to completion. If this raises, remaining processes are killed."""
        try:
            with self.loop:
                self.task.start()
                if self.has_signal_wakeup:
                    signal.set_wakeup_fd(self.loop.wakeup_fd, warn_on_full_buffer=False)
                try:
                    self.loop.run(until=lambda: self.task.is_finished)
                except KeyboardInterrupt:  # the program has no handler of its own: stop in order
                    self.interrupt()
                    self.loop.run(until=lambda: self.task.is_finished)
                    raise
                finally:
                    if self.has_signal_wakeup:
                        signal.set_wakeup_fd(-1)
        finally:
            self._close()
        if self.task.report is None:
            raise RuntimeError("the task has finished without a report")
        return self.task.report

    def _close(self) -> None:
        self.task.release()
        self.registration.close()

    def start(self, on_done: Callable[[], None]) -> None:
        """Start the task. At the end, the loop calls `on_done`."""
        self._on_done = on_done
        self.task.watchers.append(self._on_task_changed)
        self.loop.call_soon(self._start_task)

    def _start_task(self) -> None:
        self.task.start()

    def _on_task_changed(self) -> None:
        if self.task.is_finished:
            self.loop.call_soon(self._complete)

    def fail(self, error: BaseException) -> None:
        """End without a report: kill what still runs."""
        if self.error is None:
            self.error = error
            for child in self.loop.children:
                child.discard_records()
                child.kill("killed")
            self._complete()

    def _complete(self) -> None:
        if self.loop.children:
            self.loop.call_later(KILL_POLL_SECONDS, self._complete)
            return
        on_done = self._on_done
        self._on_done = None
        if on_done is not None:
            try:
                self._close()
            finally:
                on_done()

    def interrupt(self) -> None:
        """Stop the task; the second call kills it."""
        self.interrupt_count += 1
        if self.interrupt_count > 1:
            self.loop.call_soon(lambda: self.task.kill("killed"))
        else:
            self.loop.call_soon(lambda: self.task.stop("interrupted"))


class TaskThread:
    """One event loop and thread for all tasks that a program runs at the same time.

    They share the watchdog, the process table and the connection to the ledger. Both end with the
    last task; the next one starts another thread.
    """

    _current: "TaskThread | None" = None
    _lock = Lock()
    _process = os.getpid()  # a fork copies no thread

    def __init__(self) -> None:
        self._loop = ProcessLoop()
        self._on_done: dict[TaskRunner, Callable[[], None]] = {}  # of active tasks
        self._finished: list[TaskRunner] = []
        Thread(target=self._run, name="steno", daemon=True).start()

    @classmethod
    def start(
        cls, setup: TaskSetup, on_done: Callable[[], None], sink: RunSink | None = None
    ) -> TaskRunner:
        """Start a task. The thread calls `on_done` when it has a report or an error."""
        if cls._process != os.getpid():
            cls._process = os.getpid()
            cls._lock = Lock()
            cls._current = None
        with cls._lock:
            thread = cls._current = cls._current or TaskThread()
            return thread._start(setup, on_done, sink)

    def _start(
        self, setup: TaskSetup, on_done: Callable[[], None], sink: RunSink | None
    ) -> TaskRunner:
        reserve_descriptors(len(self._on_done) + 1)
        runner = TaskRunner(setup, parent=self._loop)
        if sink is not None:
            runner.task.sinks.append(sink)
        self._on_done[runner] = on_done
        runner.start(lambda: self._finished.append(runner))
        return runner

    def _run(self) -> None:
        """The thread."""
        try:
            with self._loop:
                while not self._is_idle():
                    self._report_finished()
                    self._loop.step()
        except BaseException as error:  # of the loop itself: no task can continue
            for runner in self._on_done:
                runner.error = runner.error or error
            self._finished = list(self._on_done)
            self._is_idle()
        self._report_finished()

    def _is_idle(self) -> bool:
        with TaskThread._lock:
            if len(self._finished) < len(self._on_done):
                return False
            if TaskThread._current is self:
                TaskThread._current = None
            return True

    def _report_finished(self) -> None:
        while self._finished:
            self._on_done.pop(self._finished.pop())()


def reserve_descriptors(runs: int) -> None:
    """Raise the soft limit of open files for this many runs. StenoError if that is not enough."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OTHER_DESCRIPTORS + runs * DESCRIPTORS_PER_RUN
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    limit = 2 * needed  # not one by one
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if limit < needed:
        raise StenoError(
            f"{runs} runs at once need about {needed} open files, and the limit is {hard}; "
            "raise it (ulimit -Hn), or run fewer at once"
        )
    with suppress(OSError, ValueError):  # without it, starting an agent says what is missing
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


MAX_SHOWN_PROMPT_CHARS = 200  # in the registry entry


class RunRegistration:
    """Registers each run of a task and answers requests. Create it before the task starts."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._run_info: RunInfo | None = None
        self._control_socket: ControlSocket | None = None
        self._registered_run_id: str | None = None  # also if the registration failed
        self._unwritten: dict[str, RunInfo] = {}  # marked for recovery
        task.ledger_writer.on_written = self._on_written
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
                name=self._task.setup.name and redact(self._task.setup.name),
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
            self._unwritten[self._run_info.run] = self._run_info
        elif self._run_info is not None:
            with suppress(StenoError):
                remove_run_info(self._run_info)
        self._control_socket = None
        self._run_info = None
        self._registered_run_id = None

    def _on_written(self, run_id: str) -> None:
        """A run was written to the ledger after its end: there is nothing to recover."""
        info = self._unwritten.pop(run_id, None)
        if info is not None:
            with suppress(StenoError):
                remove_run_info(info)

    # -- live state ------------------------------------------------------------------------------

    def _on_events(self, run: AgentRun, events: list[Event]) -> None:
        if run.accumulator.session is not None:
            self._update_run_info(session=run.accumulator.session)

    def _status(self) -> Reply:
        task = self._task
        run = task.run
        state = LiveState() if run is None else LiveState(run.accumulator, run.usage_accumulator)
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
        if run is not None:
            reply |= self._spend_and_silence(run)
            if run.awaits_permission:
                reply["state"] = "asking"
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
            case {"do": "budget"}:
                return {"ok": True, **self._task.budget_state()}
            case {"do": "permission", "id": str(id_), "text": str(text), "seconds": float(seconds)}:
                return self._on_permission_request(id_, text, seconds)
            case {"do": "permission_decided", "id": str(id_), "text": str(text)}:
                if self._task.run is not None:
                    self._task.run.end_permission_wait(id_, text)
                return {"ok": True}
        return {
            "ok": False,
            "error": 'expected {"do": ...} with status, stop, kill, or send with a "text"',
        }

    def _on_permission_request(self, id_: str, text: str, seconds: float) -> Reply:
        run = self._task.run
        if run is None or run.report is not None:
            return {"ok": False, "error": "no active attempt"}
        run.await_permission(id_, text, min(max(0.0, seconds), MAX_PERMISSION_SECONDS))
        return {"ok": True}

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
