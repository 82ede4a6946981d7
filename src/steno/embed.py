"""Runs for the programs of others: in their thread, in a thread of ours, or as an iterator of events. It only joins rooms."""

from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

from .event import Event
from .prepare import Prepared, prepared
from .report import TaskReport
from .supervise.errand import Errand
from .supervise.run import Run


def prepare(prompt: str, options: Mapping[str, Any]) -> Prepared:
    """Check what is asked for; StenoError if it is wrong."""
    return prepared(prompt, {name: value for name, value in options.items() if value is not None})


def carry_out(asked: Prepared) -> TaskReport:
    """Carry it out here."""
    return Errand(asked.setup).carry_out() if asked.refusal is None else asked.refusal


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
    """A run as an iterator of its events. `report` is None until it is over.

    The run turns in a thread of its own, so that its clocks go on while an event is looked at. Events that nobody has
    asked for yet are kept. It is iterated once; whoever stops iterating early ends the run, and waits for its end.
    """

    def __init__(self, asked: Prepared) -> None:
        self.report: TaskReport | None = asked.refusal
        self._errand = Errand(asked.setup) if asked.refusal is None else None
        self._queue: SimpleQueue[list[Event] | BaseException | None] = SimpleQueue()  # None: it is over
        self._thread: Thread | None = None

    def __iter__(self) -> Iterator[Event]:
        """The events, each as soon as it is there."""
        errand, self._errand = self._errand, None
        if errand is None:
            return
        self._start(errand)
        try:
            while True:
                got = self._queue.get()
                if got is None:
                    return
                if isinstance(got, BaseException):
                    raise got
                yield from got
        finally:
            self._end(errand)

    def _start(self, errand: Errand) -> None:
        def sink(run: Run, events: list[Event]) -> None:
            self._queue.put(events)

        def work() -> None:
            try:
                self.report = errand.carry_out()
                self._queue.put(None)
            except BaseException as problem:
                self._queue.put(problem)

        errand.task.sinks.append(sink)
        self._thread = Thread(target=work, name=f"steno {errand.task.id}", daemon=True)
        self._thread.start()

    def _end(self, errand: Errand) -> None:
        """Wait for the end, and ask for it if the run still goes on. Ctrl-C while waiting kills it."""
        thread = cast("Thread", self._thread)
        while thread.is_alive():
            try:
                if not errand.task.over:
                    errand.interrupt()
                thread.join()
            except KeyboardInterrupt:
                continue
