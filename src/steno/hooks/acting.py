"""Runs a command for each event that is meant, one after the other, while the events go on. It never uses a shell.

The commands are started through the loop that is given, and get the event as JSON on their stdin.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from .. import event as ev
from ..process import ProcessCommand, ProcessLoop
from ..reading import RunParser
from ..tick import Header, Record
from .match import END_EVENT, EVENT_KINDS, EventFilter, PlaceholderValues, fill_placeholders, uses_placeholder

MAX_QUEUED_BYTES = 16 << 20  # bytes of events whose commands may wait for their turn: beyond that events are left out, and counted
MAX_SHOWN_COMMAND_CHARS = 200  # characters of a command that failed

encode = msgspec.json.Encoder().encode
OutputCallback = Callable[[bytes], None]


class HookSpec(Struct, frozen=True):
    """What is to be done, for which events. `out` and `err` get what the commands print; `say` is told what failed."""

    event_filter: EventFilter
    argv: tuple[str, ...]
    on_stdout: OutputCallback
    on_stderr: OutputCallback
    on_failure: Callable[[str], None]
    first_match_only: bool = False


class HookRunner:
    """What is done for the events of one run."""

    def __init__(self, loop: ProcessLoop, wish: HookSpec, reading: RunParser) -> None:
        self.spec = wish
        self.started_count = self.failed_count = self.dropped_count = 0
        self._loop, self._parser = loop, reading
        header = reading.header or Header()
        self._placeholder_values = PlaceholderValues(reading.accumulator, header.run_id, header.cwd)
        self._needs_verdict = wish.event_filter.kind in ("result", END_EVENT) or uses_placeholder(wish.argv, "verdict")
        self._queue: deque[tuple[tuple[str, ...], bytes]] = deque()
        self._denied_call_ids: set[str] = set()
        self._queued_bytes = 0
        self._is_busy = False

    @property
    def is_done(self) -> bool:
        """Whether no other event is wanted."""
        return self.spec.first_match_only and (self.started_count > 0 or bool(self._queue))

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing waits."""
        return not self._is_busy and not self._queue

    # -- events ----------------------------------------------------------------------------------------------------

    def add(self, events: Iterable[ev.Event]) -> None:
        """Events, folded in before."""
        kind = EVENT_KINDS[self.spec.event_filter.kind]
        for event in events:
            if kind is not None and type(event) is kind and not self._is_repeated_denial(event):
                self._run_if_matching(self._placeholder_values.for_event(event), encode(event))

    def _is_repeated_denial(self, event: ev.Event) -> bool:
        """Whether it only repeats a refusal: an agent tells one several times."""
        if not isinstance(event, ev.PermissionDenied) or event.call is None:
            return False
        before = event.call in self._denied_call_ids
        self._denied_call_ids.add(event.call)
        return before

    def finish(self) -> None:
        """The run is over."""
        if self.spec.event_filter.kind == END_EVENT:
            self._run_if_matching(self._placeholder_values.for_run(END_EVENT), b"")

    def _run_if_matching(self, told: dict[str, str], body: bytes) -> None:
        if self.is_done:
            return
        if self._needs_verdict:
            told["verdict"] = self._parser.report().verdict
        if self.spec.event_filter.matches(told):
            self._enqueue(fill_placeholders(self.spec.argv, told), body or encode(told))

    def _enqueue(self, argv: tuple[str, ...], body: bytes) -> None:
        if self._queue and self._queued_bytes + len(body) > MAX_QUEUED_BYTES:
            self.dropped_count += 1
            return
        self._queue.append((argv, body))
        self._queued_bytes += len(body)
        self._start_next()

    # -- commands --------------------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        if self._is_busy or not self._queue:
            return
        argv, body = self._queue.popleft()
        self._queued_bytes -= len(body)
        self._is_busy = True
        self.started_count += 1
        self._loop.start(ProcessCommand(argv, stdin=body + b"\n"), lambda tick: self._on_record(argv, tick), keep_orphans=True)

    def _on_record(self, argv: tuple[str, ...], tick: Record) -> None:
        if tick.code == "out":
            self.spec.on_stdout(tick.data)
        elif tick.code == "err":
            self.spec.on_stderr(tick.data)
        elif tick.code == "exit":
            if tick.number:
                self.failed_count += 1
                self.spec.on_failure(f"{_shorten_command(argv)}: exit code {tick.number}")
            self._is_busy = False
            self._start_next()


def _shorten_command(argv: tuple[str, ...]) -> str:
    """A command, as far as it is worth showing: what was put in can be a whole answer."""
    text = " ".join(argv)
    return text if len(text) <= MAX_SHOWN_COMMAND_CHARS else f"{text[:MAX_SHOWN_COMMAND_CHARS]}…"
