"""The library's functions that run an agent: `run`, `arun` and `stream`."""

import os
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event as ThreadEvent
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from ..errors import StenoError
from ..event import Event
from ..report import TaskReport
from ..runner.attempt import AgentRun
from ..runner.prepare import FORMER_OPTION_NAMES, PreparedTask, prepare_task
from ..runner.task_runner import TaskRunner, TaskThread

if TYPE_CHECKING:
    from asyncio import Event as AsyncioEvent

StrPath = str | os.PathLike[str]
RUN_FINISHED_MESSAGE = "cannot send a message: the run has finished"
SEND_POLL_SECONDS = 0.1  # interval for checking that the run is still active


class RunOptions(TypedDict, total=False):
    """The options of `steno run`, with underscores. None: the default from the settings.

    Options for the prompt's source, for output and for sync are left out: `--prompt`, `--file`,
    `--json`, `--raw`, `--feed`, `--quiet`, `--exit-from`, `--sync`, `--otel`, `--otel-content`,
    `--notify`, `--notify-on`.
    """

    agent: str | None
    program: StrPath | None
    model: str | None
    backend: str | None
    cwd: StrPath | None
    session_id: str | None
    resume: str | None
    fork: bool
    continue_: bool
    worktree: str | bool | None
    recording: StrPath | None  # the recording to replay, with agent="replay"
    speed: float | None  # with agent="replay"
    args: Sequence[str]  # passed to the agent unchanged
    max_turns: int | str | None  # "10..30": see `--max-turns`
    permission_mode: str | None
    allow: Sequence[str] | None
    deny: Sequence[str] | None
    system_prompt: str | None
    add_dirs: Sequence[StrPath] | None
    mcp_config: Sequence[StrPath] | None
    json_schema: StrPath | Mapping[str, Any] | None
    env: Mapping[str, str] | None
    no_api_key: bool | None
    steer: bool | None
    permission_relay: bool | None
    permission_timeout: float | str | None
    deadline: float | str | None
    timeout: float | str | None
    first_output: float | str | None
    silence: float | str | None
    tool_silence: float | str | None
    after_result: float | str | None
    background: float | str | None
    max_cost: float | None
    max_tokens: int | None
    warn_at: float | None
    alert_at: str | Sequence[float] | None
    attempts: int | None
    resume_on: Sequence[str] | None
    on_limit: str | None
    max_wait: float | str | None
    fallback_model: str | None
    fallback_agent: str | Sequence[str] | None
    refresh_at: float | None
    no_advice: bool | None
    changes: str | None
    undo_days: int | str | None
    undo_runs: int | str | None
    name: str | None  # of the run
    tag: Mapping[str, str] | Sequence[str] | None  # labels of the run
    ledger: StrPath | None


def run(prompt: str, **options: Unpack[RunOptions]) -> TaskReport:
    """Run an agent and wait for it, like `steno run`. Returns the same report.

    `options` are those of RunOptions; defaults come from the environment and `steno.toml`. A failed
    agent never raises, not even if it is not installed (`not_found`) or a budget is used up
    (`max_budget`). Invalid options raise StenoError before anything is started.
    """
    task = prepare_run(prompt, options)
    if task.refusal is not None:
        return task.refusal
    ended = ThreadEvent()
    runner = TaskThread.start(task.setup, ended.set)
    interrupted = _wait_for_end(runner, ended)
    if interrupted is not None:
        raise interrupted
    return _report_of(runner)


async def arun(prompt: str, **options: Unpack[RunOptions]) -> TaskReport:
    """Like `run`, without blocking the event loop: all runs of a program share one thread.

    When the awaiting task is cancelled, the run is stopped (interrupt, terminate, kill) and
    recorded before CancelledError is raised. A second cancellation kills it.
    """
    return await run_in_thread(prompt, options)


def stream(prompt: str, **options: Unpack[RunOptions]) -> "RunStream":
    """Like `run`, as an iterator of events for `for` or `async for`; see RunStream.

    The options are checked first. This can take a moment if a model server is queried or a worktree
    is created; with an event loop, call it with `asyncio.to_thread` then.
    """
    return RunStream(prepare_run(prompt, options))


def prepare_run(prompt: str, options: Mapping[str, Any]) -> PreparedTask:
    """Check the options. Raises StenoError if they are invalid."""
    for former in FORMER_OPTION_NAMES.keys() & options.keys():
        text = f"{former} is now called {FORMER_OPTION_NAMES[former]}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    return prepare_task(
        prompt,
        {name: _paths_to_text(value) for name, value in options.items() if value is not None},
    )


def _paths_to_text(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_paths_to_text(item) for item in value] if isinstance(value, list | tuple) else value


async def run_in_thread(prompt: str, options: Mapping[str, Any]) -> TaskReport:
    """Run in a separate thread. A cancellation is raised after the run has ended."""
    import asyncio

    task = await asyncio.to_thread(prepare_run, prompt, options)
    if task.refusal is not None:
        return task.refusal
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(ended.set)

    runner = TaskThread.start(task.setup, notify)
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            runner.interrupt()
    if cancelled is not None:
        raise cancelled
    return _report_of(runner)


def _wait_for_end(runner: TaskRunner, ended: ThreadEvent) -> KeyboardInterrupt | None:
    """Wait for the run's thread. Ctrl-C stops the run, and a second one kills it."""
    interrupted = None
    while not ended.is_set():
        try:
            ended.wait()
        except KeyboardInterrupt as error:
            interrupted = error
            runner.interrupt()
    return interrupted


def _report_of(runner: TaskRunner) -> TaskReport:
    """The report of a run that has ended; raises its error."""
    if runner.error is not None:
        raise runner.error
    if runner.task.report is None:
        raise RuntimeError("the task has finished without a report")
    return runner.task.report


class RunStream:
    """A run as an iterator of its events. `report` is None until it ends; `task_id` is its id.

    The run starts with the first event or at `with`, in its own thread, so that timeouts work while
    the caller handles an event; events are queued. They can be iterated once: a second loop raises
    StenoError. Leaving the loop or the `with` block early stops the run. `with` and `for` wait for
    its end; an `async for` left by `break` does not, so use `async with` around it.
    """

    def __init__(self, task: PreparedTask) -> None:
        self.report: TaskReport | None = task.refusal
        self.task_id: str | None = task.setup.task_id
        self._setup = task.setup
        self._runner: TaskRunner | None = None  # set when started
        self._ended = ThreadEvent()
        # Batches of events; at the end None or an exception.
        self._queue: SimpleQueue[list[Event] | BaseException | None] = SimpleQueue()
        self._is_exhausted = task.refusal is not None
        self._is_running = False
        self._is_iterated = False
        self._wakeup: AsyncioEvent | None = None
        self._notify: Callable[[], object] = lambda: None

    # -- control ----------------------------------------------------------------------------------

    @property
    def run_id(self) -> str | None:
        """The id of the current or last attempt; None before the first."""
        attempt = self._runner.task.run if self._runner is not None else None
        return None if attempt is None else attempt.id

    def stop(self) -> None:
        """Stop the run, like `steno stop`; a second call kills it. Does not wait.

        The remaining events and the report still follow. Does nothing after the end; raises
        StenoError before the start.
        """
        if self.report is None:
            self._started_runner().interrupt()

    def send(self, text: str) -> None:
        """Send a message to the agent, like `steno send`. Raises StenoError with the reason."""
        if not text.strip():
            raise StenoError("cannot send an empty message")
        problem: str | None = RUN_FINISHED_MESSAGE
        if self.report is None:
            problem = self._send_from_thread(self._started_runner(), text)
        if problem is not None:
            raise StenoError(problem)

    def _send_from_thread(self, runner: TaskRunner, text: str) -> str | None:
        """Send it in the run's thread. Returns the problem, if any."""
        answers = SimpleQueue[str | None]()
        runner.loop.call_soon(lambda: answers.put(runner.registration.send(text)))
        while True:
            was_running = self._is_running  # read first: the answer may come just before the end
            try:
                return answers.get(timeout=SEND_POLL_SECONDS)
            except Empty:
                if not was_running:
                    return RUN_FINISHED_MESSAGE

    def _started_runner(self) -> TaskRunner:
        if self._runner is None:
            raise StenoError("not started yet; the run starts with its first event or at `with`")
        return self._runner

    # -- for and with -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Event]:
        """The events as they arrive."""
        self._check_first_iteration()
        return self._events()

    def _events(self) -> Iterator[Event]:
        self._start()
        try:
            while not self._is_exhausted:
                yield from self._unpack_item(self._queue.get())
        finally:
            self._stop_and_wait()

    def __enter__(self) -> Self:
        """Start the run."""
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the run if it is active, and wait for its end."""
        self._stop_and_wait()

    # -- async for and async with -----------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        """The events as they arrive, without blocking."""
        self._check_first_iteration()
        events = self._aevents()
        # The event loop closes an abandoned generator late or never: stop the run at once.
        weakref.finalize(events, self._request_stop)
        return events

    async def _aevents(self) -> AsyncIterator[Event]:
        wakeup = self._get_wakeup()
        self._start()
        try:
            while not self._is_exhausted:
                wakeup.clear()
                try:
                    item = self._queue.get_nowait()
                except Empty:
                    await wakeup.wait()
                    continue
                for event in self._unpack_item(item):
                    yield event
        finally:
            await self._astop_and_wait()

    async def __aenter__(self) -> Self:
        """Start the run."""
        self._get_wakeup()
        self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop the run if it is active, and wait for its end."""
        await self._astop_and_wait()

    def _get_wakeup(self) -> "AsyncioEvent":
        """The asyncio event that the run's thread sets after each item it queues."""
        import asyncio

        if self._wakeup is None:
            wakeup = asyncio.Event()
            loop = asyncio.get_running_loop()

            def notify() -> None:
                with suppress(RuntimeError):  # the event loop may be closed
                    loop.call_soon_threadsafe(wakeup.set)

            self._wakeup = wakeup
            self._notify = notify
        return self._wakeup

    async def _astop_and_wait(self) -> None:
        """Like `_stop_and_wait`. A cancellation kills the run and is raised after its end."""
        import asyncio

        wakeup = self._get_wakeup()
        cancelled = None
        self._request_stop()
        while self._is_running:
            wakeup.clear()
            try:
                await wakeup.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self._started_runner().interrupt()
        if cancelled is not None:
            raise cancelled

    # -- the run's thread -------------------------------------------------------------------------

    def _check_first_iteration(self) -> None:
        if self._is_iterated:
            raise StenoError("the events of a run can be iterated only once; see `report`")
        self._is_iterated = True

    def _unpack_item(self, item: list[Event] | BaseException | None) -> list[Event]:
        if isinstance(item, list):
            return item
        self._is_exhausted = True
        if item is not None:
            raise item
        return []

    def _start(self) -> None:
        if self._runner is not None or self.report is not None:
            return
        self._is_running = True

        def put(item: list[Event] | BaseException | None) -> None:
            self._is_running = isinstance(item, list)
            self._queue.put(item)
            self._notify()

        def sink(run: AgentRun, events: list[Event]) -> None:
            put(events)

        def on_done() -> None:
            self.report = runner.task.report
            put(runner.error)
            self._ended.set()

        runner = self._runner = TaskThread.start(self._setup, on_done, sink)

    def _request_stop(self) -> None:
        """Stop the run unless it has finished or was stopped before: a second stop kills it."""
        if (
            self._runner is not None
            and not self._runner.task.is_finished
            and not self._runner.interrupt_count
        ):
            self._runner.interrupt()

    def _stop_and_wait(self) -> None:
        """Stop the run if it is active and wait for its end. Ctrl-C while waiting kills it."""
        self._request_stop()
        if self._runner is not None:
            _wait_for_end(self._runner, self._ended)
