"""Runs for the programs of others: in their thread, in a thread of ours, or as an iterator of events. It only joins rooms.

`run`, `arun` and `stream` are the library's calls that start an agent; `Options` is what they may be told.
"""

import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from ..errors import StenoError
from ..event import Event
from ..report import TaskReport
from ..runner.attempt import AgentRun
from ..runner.prepare import PreparedTask, prepare_task
from ..runner.task_runner import TaskRunner

if TYPE_CHECKING:
    from asyncio import Event as Bell

StrPath = str | os.PathLike[str]
RUN_FINISHED_MESSAGE = "it takes no messages: it is over"
SEND_POLL_SECONDS = (
    0.1  # seconds from one look to the next whether a run still goes on that was sent something
)


class RunOptions(TypedDict, total=False):
    """What a run may be told: the options of `steno run`, with underscores. None: as the settings say.

    Not among them are those that say where the prompt comes from and what is printed (`--prompt`, `--file`, `--json`, `--raw`,
    `--feed`, `--quiet`, `--exit-from`), and `--sync`.
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
    tape: StrPath | None  # of the agent `replay`: what it plays
    speed: float | None  # of the agent `replay`
    args: Sequence[str]  # the agent's own arguments, as they are
    max_turns: int | None
    permission_mode: str | None
    allow: Sequence[str] | None
    deny: Sequence[str] | None
    system_prompt: str | None
    add_dir: Sequence[StrPath] | None
    mcp_config: Sequence[StrPath] | None
    json_schema: StrPath | Mapping[str, Any] | None
    env: Mapping[str, str] | None
    no_api_key: bool | None
    steer: bool | None
    timeout: float | str | None
    first_output: float | str | None
    silence: float | str | None
    tool_silence: float | str | None
    after_result: float | str | None
    background: float | str | None
    max_cost: float | None
    max_tokens: int | None
    warn_at: float | None
    attempts: int | None
    resume_on: Sequence[str] | None
    on_limit: str | None
    fallback_model: str | None
    fallback_agent: str | Sequence[str] | None
    refresh_at: float | None
    no_advice: bool | None
    changes: str | None
    ledger: StrPath | None


def run(prompt: str, **options: Unpack[RunOptions]) -> TaskReport:
    """Run an agent and wait for it: the same as `steno run`, and the same report.

    `options` are those of `Options`; what is not given comes from the environment and from `steno.toml`. How the agent fails
    is in the report and never raises, also where it is not installed (`not_found`) or a budget is used up (`max_budget`);
    wrong options raise StenoError, before anything is started.
    """
    asked = prepare_run(prompt, options)
    return TaskRunner(asked.setup).run() if asked.refusal is None else asked.refusal


async def arun(prompt: str, **options: Unpack[RunOptions]) -> TaskReport:
    """The same without blocking: the run turns in a thread of its own.

    When the task that waits is cancelled, the run is ended in order (interrupt, terminate, kill) and recorded,
    and only then is the cancellation passed on. Cancelled a second time, the run is killed.
    """
    return await run_in_thread(prompt, options)


def stream(prompt: str, **options: Unpack[RunOptions]) -> "RunStream":
    """The same as an iterator of events while the run goes on, with `for` or with `async for`; see Live.

    What is asked for is checked here, which can take a moment where a model server is asked or a worktree is made; a program
    with an event loop calls it by `asyncio.to_thread`, then.
    """
    return RunStream(prepare_run(prompt, options))


def prepare_run(prompt: str, options: Mapping[str, Any]) -> PreparedTask:
    """Check what is asked for; StenoError if it is wrong."""
    return prepare_task(
        prompt,
        {name: _paths_to_text(value) for name, value in options.items() if value is not None},
    )


def _paths_to_text(value: Any) -> Any:
    """A path, or a list with paths in it, as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_paths_to_text(one) for one in value] if isinstance(value, list | tuple) else value


async def run_in_thread(prompt: str, options: Mapping[str, Any]) -> TaskReport:
    """Carry it out in a thread of its own. Whoever cancels this waits until the run has ended."""
    import asyncio

    asked = await asyncio.to_thread(prepare_run, prompt, options)
    if asked.refusal is not None:
        return asked.refusal
    errand, loop = TaskRunner(asked.setup), asyncio.get_running_loop()
    done: asyncio.Future[TaskReport] = loop.create_future()

    def work() -> None:
        try:
            report = errand.run()
        except BaseException as problem:
            loop.call_soon_threadsafe(done.set_exception, problem)
        else:
            loop.call_soon_threadsafe(done.set_result, report)

    Thread(target=work, name=f"steno {errand.task.id}", daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError as problem:
            cancelled = problem
            errand.interrupt()
    if cancelled is not None:
        done.exception()  # looked at: nobody is told of it
        raise cancelled
    return done.result()


class RunStream:
    """A run as an iterator of its events. `report` is None until it is over; `task_id` names it for `steno ps`.

    It begins when its first event is asked for, or at `with`. It turns in a thread of its own, so that its clocks go on while
    an event is looked at; events that nobody has asked for yet are kept. They are given once: a second loop raises StenoError.
    Whoever leaves the loop early, or the `with`, ends the run in order. The `with` waits for the end, and so does `for`; an
    `async for` that is left by `break` does not, so put it into `async with`.
    """

    def __init__(self, asked: PreparedTask) -> None:
        self.report: TaskReport | None = asked.refusal
        self.task_id: str | None = asked.setup.task_id
        self._setup = asked.setup
        self._runner: TaskRunner | None = None  # once it has begun
        self._thread: Thread | None = None
        self._queue: SimpleQueue[list[Event] | BaseException | None] = (
            SimpleQueue()
        )  # None: it is over
        self._is_exhausted = asked.refusal is not None  # the last thing was taken out of the queue
        self._is_running = False  # its thread turns
        self._is_iterated = False
        self._wakeup: Bell | None = None
        self._notify: Callable[[], object] = lambda: None

    # -- what may be asked of it -----------------------------------------------------------------------------------

    @property
    def run_id(self) -> str | None:
        """The attempt that goes on, or the last one; None until the first has begun."""
        attempt = self._runner.task.run if self._runner is not None else None
        return None if attempt is None else attempt.id

    def stop(self) -> None:
        """Ask it to end, as `steno stop` does: the first time in order, the second time at once. It does not wait.

        Its last events still come, and then its report. Nothing is done where it is over; StenoError: it has not begun.
        """
        if self.report is None:
            self._started_runner().interrupt()

    def send(self, text: str) -> None:
        """Say something to the agent, as `steno send` does. StenoError: it takes no message (now), and why."""
        if not text.strip():
            raise StenoError("there is nothing to send: the text is empty")
        wrong = (
            RUN_FINISHED_MESSAGE
            if self.report is not None
            else self._send_from_thread(self._started_runner(), text)
        )
        if wrong is not None:
            raise StenoError(wrong)

    def _send_from_thread(self, errand: TaskRunner, text: str) -> str | None:
        """Have its thread send it; why it could not, if so."""
        answers = SimpleQueue[str | None]()
        errand.loop.call_soon(lambda: answers.put(errand.registration.send(text)))
        while True:
            going = self._is_running  # looked at first: an answer may have been its last act
            try:
                return answers.get(timeout=SEND_POLL_SECONDS)
            except Empty:
                if not going:
                    return RUN_FINISHED_MESSAGE

    def _started_runner(self) -> TaskRunner:
        if self._runner is None:
            raise StenoError("the run has not begun: it does with its first event, or at `with`")
        return self._runner

    # -- for and with ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Event]:
        """The events, each as soon as it is there."""
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
        """Begin."""
        self._start()
        return self

    def __exit__(self, *problem: object) -> None:
        """End it, if it still goes on, and wait for that."""
        self._stop_and_wait()

    # -- the same in an event loop ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        """The events, each as soon as it is there, without blocking."""
        self._check_first_iteration()
        events = self._aevents()
        # a loop that is left is closed by its event loop, later or (when that ends first) never: the end is asked for at once
        weakref.finalize(events, self._request_stop)
        return events

    async def _aevents(self) -> AsyncIterator[Event]:
        bell = self._get_wakeup()
        self._start()
        try:
            while not self._is_exhausted:
                bell.clear()
                try:
                    got = self._queue.get_nowait()
                except Empty:
                    await bell.wait()
                    continue
                for event in self._unpack_item(got):
                    yield event
        finally:
            await self._astop_and_wait()

    async def __aenter__(self) -> Self:
        """Begin."""
        self._get_wakeup()
        self._start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        """End it, if it still goes on, and wait for that."""
        await self._astop_and_wait()

    def _get_wakeup(self) -> "Bell":
        """What the thread rings in this event loop for everything that it puts into the queue."""
        import asyncio

        if self._wakeup is None:
            bell, loop = asyncio.Event(), asyncio.get_running_loop()

            def ring() -> None:
                with suppress(RuntimeError):  # an event loop that is closed has nobody who waits
                    loop.call_soon_threadsafe(bell.set)

            self._wakeup, self._notify = bell, ring
        return self._wakeup

    async def _astop_and_wait(self) -> None:
        """As `_end`. Whoever is cancelled while waiting kills it, and is told when it is over."""
        import asyncio

        bell, cancelled = self._get_wakeup(), None
        self._request_stop()
        while self._is_running:
            bell.clear()
            try:
                await bell.wait()
            except asyncio.CancelledError as problem:
                cancelled = problem
                self._started_runner().interrupt()
        if cancelled is not None:
            raise cancelled

    # -- its thread ------------------------------------------------------------------------------------------------

    def _check_first_iteration(self) -> None:
        if self._is_iterated:
            raise StenoError(
                "the events of a run are given once, and these were asked for already; `report` is what they tell"
            )
        self._is_iterated = True

    def _unpack_item(self, got: list[Event] | BaseException | None) -> list[Event]:
        """What came out of the queue."""
        if isinstance(got, list):
            return got
        self._is_exhausted = True
        if got is not None:
            raise got
        return []

    def _start(self) -> None:
        if self._runner is not None or self.report is not None:
            return
        errand = self._runner = TaskRunner(self._setup)
        self._is_running = True

        def put(what: list[Event] | BaseException | None) -> None:
            self._is_running = isinstance(what, list)
            self._queue.put(what)
            self._notify()

        def sink(run: AgentRun, events: list[Event]) -> None:
            put(events)

        def work() -> None:
            try:
                self.report = errand.run()
                put(None)
            except BaseException as problem:
                put(problem)

        errand.task.sinks.append(sink)
        self._thread = Thread(target=work, name=f"steno {errand.task.id}", daemon=True)
        self._thread.start()

    def _request_stop(self) -> None:
        """Ask it to end, unless it does so by itself or was asked already: a second time would kill it."""
        if (
            self._runner is not None
            and not self._runner.task.is_finished
            and not self._runner.interrupt_count
        ):
            self._runner.interrupt()

    def _stop_and_wait(self) -> None:
        """Wait for the end, and ask for it if the run still goes on. Ctrl-C while waiting kills it."""
        self._request_stop()
        while self._thread is not None and self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt:
                self._started_runner().interrupt()
