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

from .event import Event
from .prepare import Prepared, prepared
from .report import StenoError, TaskReport
from .supervise.errand import Errand
from .supervise.run import Run

if TYPE_CHECKING:
    from asyncio import Event as Bell

Where = str | os.PathLike[str]
OVER = "it takes no messages: it is over"
POLL = 0.1  # seconds from one look to the next whether a run still goes on that was sent something


class Options(TypedDict, total=False):
    """What a run may be told: the options of `steno run`, with underscores. None: as the settings say.

    Not among them are those that say where the prompt comes from and what is printed (`--prompt`, `--file`, `--json`, `--raw`,
    `--feed`, `--quiet`, `--exit-from`), and `--sync`.
    """

    agent: str | None
    program: Where | None
    model: str | None
    backend: str | None
    cwd: Where | None
    session_id: str | None
    resume: str | None
    fork: bool
    continue_: bool
    worktree: str | bool | None
    tape: Where | None  # of the agent `replay`: what it plays
    speed: float | None  # of the agent `replay`
    args: Sequence[str]  # the agent's own arguments, as they are
    max_turns: int | None
    permission_mode: str | None
    allow: Sequence[str] | None
    deny: Sequence[str] | None
    system_prompt: str | None
    add_dir: Sequence[Where] | None
    mcp_config: Sequence[Where] | None
    json_schema: Where | Mapping[str, Any] | None
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
    ledger: Where | None


def run(prompt: str, **options: Unpack[Options]) -> TaskReport:
    """Run an agent and wait for it: the same as `steno run`, and the same report.

    `options` are those of `Options`; what is not given comes from the environment and from `steno.toml`. How the agent fails
    is in the report and never raises, also where it is not installed (`not_found`) or a budget is used up (`max_budget`);
    wrong options raise StenoError, before anything is started.
    """
    asked = prepare(prompt, options)
    return Errand(asked.setup).carry_out() if asked.refusal is None else asked.refusal


async def arun(prompt: str, **options: Unpack[Options]) -> TaskReport:
    """The same without blocking: the run turns in a thread of its own.

    When the task that waits is cancelled, the run is ended in order (interrupt, terminate, kill) and recorded,
    and only then is the cancellation passed on. Cancelled a second time, the run is killed.
    """
    return await carried_out(prompt, options)


def stream(prompt: str, **options: Unpack[Options]) -> "Live":
    """The same as an iterator of events while the run goes on, with `for` or with `async for`; see Live.

    What is asked for is checked here, which can take a moment where a model server is asked or a worktree is made; a program
    with an event loop calls it by `asyncio.to_thread`, then.
    """
    return Live(prepare(prompt, options))


def prepare(prompt: str, options: Mapping[str, Any]) -> Prepared:
    """Check what is asked for; StenoError if it is wrong."""
    return prepared(prompt, {name: _plain(value) for name, value in options.items() if value is not None})


def _plain(value: Any) -> Any:
    """A path, or a list with paths in it, as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


async def carried_out(prompt: str, options: Mapping[str, Any]) -> TaskReport:
    """Carry it out in a thread of its own. Whoever cancels this waits until the run has ended."""
    import asyncio

    asked = await asyncio.to_thread(prepare, prompt, options)
    if asked.refusal is not None:
        return asked.refusal
    errand, loop = Errand(asked.setup), asyncio.get_running_loop()
    done: asyncio.Future[TaskReport] = loop.create_future()

    def work() -> None:
        try:
            report = errand.carry_out()
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


class Live:
    """A run as an iterator of its events. `report` is None until it is over; `task_id` names it for `steno ps`.

    It begins when its first event is asked for, or at `with`. It turns in a thread of its own, so that its clocks go on while
    an event is looked at; events that nobody has asked for yet are kept. They are given once: a second loop raises StenoError.
    Whoever leaves the loop early, or the `with`, ends the run in order. The `with` waits for the end, and so does `for`; an
    `async for` that is left by `break` does not, so put it into `async with`.
    """

    def __init__(self, asked: Prepared) -> None:
        self.report: TaskReport | None = asked.refusal
        self.task_id: str | None = asked.setup.task
        self._setup = asked.setup
        self._errand: Errand | None = None  # once it has begun
        self._thread: Thread | None = None
        self._queue: SimpleQueue[list[Event] | BaseException | None] = SimpleQueue()  # None: it is over
        self._over = asked.refusal is not None  # the last thing was taken out of the queue
        self._going = False  # its thread turns
        self._looped = False
        self._bell: Bell | None = None
        self._ring: Callable[[], object] = lambda: None

    # -- what may be asked of it -----------------------------------------------------------------------------------

    @property
    def run_id(self) -> str | None:
        """The attempt that goes on, or the last one; None until the first has begun."""
        attempt = self._errand.task.run if self._errand is not None else None
        return None if attempt is None else attempt.id

    def stop(self) -> None:
        """Ask it to end, as `steno stop` does: the first time in order, the second time at once. It does not wait.

        Its last events still come, and then its report. Nothing is done where it is over; StenoError: it has not begun.
        """
        if self.report is None:
            self._begun().interrupt()

    def send(self, text: str) -> None:
        """Say something to the agent, as `steno send` does. StenoError: it takes no message (now), and why."""
        if not text.strip():
            raise StenoError("there is nothing to send: the text is empty")
        wrong = OVER if self.report is not None else self._sent(self._begun(), text)
        if wrong is not None:
            raise StenoError(wrong)

    def _sent(self, errand: Errand, text: str) -> str | None:
        """Have its thread send it; why it could not, if so."""
        answers = SimpleQueue[str | None]()
        errand.loop.soon(lambda: answers.put(errand.presence.send(text)))
        while True:
            going = self._going  # looked at first: an answer may have been its last act
            try:
                return answers.get(timeout=POLL)
            except Empty:
                if not going:
                    return OVER

    def _begun(self) -> Errand:
        if self._errand is None:
            raise StenoError("the run has not begun: it does with its first event, or at `with`")
        return self._errand

    # -- for and with ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Event]:
        """The events, each as soon as it is there."""
        self._loop_once()
        return self._events()

    def _events(self) -> Iterator[Event]:
        self._begin()
        try:
            while not self._over:
                yield from self._taken(self._queue.get())
        finally:
            self._end()

    def __enter__(self) -> Self:
        """Begin."""
        self._begin()
        return self

    def __exit__(self, *problem: object) -> None:
        """End it, if it still goes on, and wait for that."""
        self._end()

    # -- the same in an event loop ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        """The events, each as soon as it is there, without blocking."""
        self._loop_once()
        events = self._aevents()
        # a loop that is left is closed by its event loop, later or (when that ends first) never: the end is asked for at once
        weakref.finalize(events, self._end_asked)
        return events

    async def _aevents(self) -> AsyncIterator[Event]:
        bell = self._hung_bell()
        self._begin()
        try:
            while not self._over:
                bell.clear()
                try:
                    got = self._queue.get_nowait()
                except Empty:
                    await bell.wait()
                    continue
                for event in self._taken(got):
                    yield event
        finally:
            await self._aend()

    async def __aenter__(self) -> Self:
        """Begin."""
        self._hung_bell()
        self._begin()
        return self

    async def __aexit__(self, *problem: object) -> None:
        """End it, if it still goes on, and wait for that."""
        await self._aend()

    def _hung_bell(self) -> "Bell":
        """What the thread rings in this event loop for everything that it puts into the queue."""
        import asyncio

        if self._bell is None:
            bell, loop = asyncio.Event(), asyncio.get_running_loop()

            def ring() -> None:
                with suppress(RuntimeError):  # an event loop that is closed has nobody who waits
                    loop.call_soon_threadsafe(bell.set)

            self._bell, self._ring = bell, ring
        return self._bell

    async def _aend(self) -> None:
        """As `_end`. Whoever is cancelled while waiting kills it, and is told when it is over."""
        import asyncio

        bell, cancelled = self._hung_bell(), None
        self._end_asked()
        while self._going:
            bell.clear()
            try:
                await bell.wait()
            except asyncio.CancelledError as problem:
                cancelled = problem
                self._begun().interrupt()
        if cancelled is not None:
            raise cancelled

    # -- its thread ------------------------------------------------------------------------------------------------

    def _loop_once(self) -> None:
        if self._looped:
            raise StenoError("the events of a run are given once, and these were asked for already; `report` is what they tell")
        self._looped = True

    def _taken(self, got: list[Event] | BaseException | None) -> list[Event]:
        """What came out of the queue."""
        if isinstance(got, list):
            return got
        self._over = True
        if got is not None:
            raise got
        return []

    def _begin(self) -> None:
        if self._errand is not None or self.report is not None:
            return
        errand = self._errand = Errand(self._setup)
        self._going = True

        def put(what: list[Event] | BaseException | None) -> None:
            self._going = isinstance(what, list)
            self._queue.put(what)
            self._ring()

        def sink(run: Run, events: list[Event]) -> None:
            put(events)

        def work() -> None:
            try:
                self.report = errand.carry_out()
                put(None)
            except BaseException as problem:
                put(problem)

        errand.task.sinks.append(sink)
        self._thread = Thread(target=work, name=f"steno {errand.task.id}", daemon=True)
        self._thread.start()

    def _end_asked(self) -> None:
        """Ask it to end, unless it does so by itself or was asked already: a second time would kill it."""
        if self._errand is not None and not self._errand.task.over and not self._errand.asked:
            self._errand.interrupt()

    def _end(self) -> None:
        """Wait for the end, and ask for it if the run still goes on. Ctrl-C while waiting kills it."""
        self._end_asked()
        while self._thread is not None and self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt:
                self._begun().interrupt()
