"""Which events are meant, and what a command is told of one. Pure: it starts nothing.

    EVENT[:FILTER]      file_change:*.py   tool_call:Bash,Edit   result:success   end

FILTER is a list of patterns with `*` and `?`, apart by commas: one of them must fit what the event is about.
"""

import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..analysis.accumulator import Accumulator
from ..errors import StenoError
from ..process import ProcessCommand, ProcessLoop
from ..recording.format import Header, Record
from ..recording.parse import RunParser
from ..recording.record import RecordingFollower
from ..report import resolve_path
from .run_registry import get_active_run

END_EVENT = "end"  # not an event of the agent's: the stream is over, and judged
EVENT_KINDS: dict[str, type[ev.Event] | None] = {
    **{str(kind.__struct_config__.tag): kind for kind in ev.Event.__subclasses__()},
    END_EVENT: None,
}
# What FILTER is compared with, by event. Events that are not here take none.
FILTER_FIELDS = {
    "started": ("model",),
    "user_message": ("kind",),
    "tool_call": ("tool",),
    "tool_result": ("tool",),
    "permission_denied": ("tool",),
    "file_change": ("path", "relative", "name"),
    "rate_limit": ("status",),
    "retry": ("status", "error"),
    "failure": ("kind", "status"),
    "compaction": ("trigger",),
    "task_started": ("kind",),
    "task_ended": ("status",),
    "hook": ("name",),
    "notice": ("kind",),
    "stderr": ("text",),
    "text": ("text",),
    "stop_requested": ("why",),
    "exited": ("code",),
    "unknown": ("kind",),
    "result": ("verdict",),
    END_EVENT: ("verdict",),
}
# What may stand in a command, with the meaning that the help gives.
PLACEHOLDERS = {
    "event": "the event's name",
    "session_id": "the agent's conversation",
    "run_id": "the run, where it was recorded by steno",
    "cwd": "the folder that the agent works in",
    "path": "the file, with its whole path",
    "relative": "the file's path below cwd",
    "name": "the file's name, or the hook's",
    "change": "created, modified or deleted",
    "tool": "the tool's name",
    "call": "the call's id",
    "verdict": "how the run ended, as far as it is known",
    "status": "the status of a limit, a retry, a failure or a task",
    "error": "the error that is retried",
    "kind": "the kind of a failure, a task, a notice or a message",
    "text": "the text of an answer or of a line of stderr",
    "model": "the model",
    "code": "the exit code",
    "trigger": "what made it compact its context",
    "why": "why it was asked to end",
    "line": "the line of stdout that tells of it",
}
COPIED_FIELDS = (
    "change",
    "call",
    "status",
    "error",
    "kind",
    "text",
    "model",
    "code",
    "trigger",
    "why",
    "name",
    "tool",
)  # as they are
_PLACEHOLDER_PATTERN = re.compile(r"\{(\{[a-z_]+\})\}|\{([a-z_]+)\}")


class EventFilter(Struct, frozen=True):
    """The events that are meant. Without filters: all of the kind."""

    kind: str
    patterns: tuple[str, ...] = ()

    def matches(self, told: dict[str, str]) -> bool:
        """Whether what is told of an event of this kind fits one of the filters."""
        if not self.patterns:
            return True
        about = [told[name] for name in FILTER_FIELDS[self.kind] if name in told]
        plain = [
            filter_.replace("[", "[[]") for filter_ in self.patterns
        ]  # brackets are themselves, as in pages/[id].tsx
        return any(fnmatchcase(text, filter_) for text in about for filter_ in plain)


def parse_event_filter(text: str) -> EventFilter:
    """What somebody wrote. StenoError: there is no such event, or it takes no filter."""
    kind, colon, rest = text.partition(":")
    if kind not in EVENT_KINDS:
        from difflib import get_close_matches

        near = get_close_matches(kind, EVENT_KINDS, 3, 0.5)
        meant = (
            f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(EVENT_KINDS)}"
        )
        raise StenoError(f"no event is called {kind!r}{meant}")
    filters = tuple(filter(None, (part.strip() for part in rest.split(","))))
    if colon and not filters:
        raise StenoError(f"{text}: nothing follows the colon")
    if filters and kind not in FILTER_FIELDS:
        raise StenoError(f"{text}: a {kind} is about nothing that could be filtered")
    return EventFilter(kind, filters)


def check_placeholders(argv: Iterable[str]) -> None:
    """StenoError: a word in braces that nothing can be put in for."""
    for argument in argv:
        for literal, word in _PLACEHOLDER_PATTERN.findall(argument):
            if not literal and word not in PLACEHOLDERS:
                raise StenoError(
                    f"{{{word}}} is not known; there are: {', '.join(PLACEHOLDERS)}; for the word itself: {{{{{word}}}}}"
                )


def uses_placeholder(argv: Iterable[str], word: str) -> bool:
    """Whether a command wants to be told this."""
    return any(
        found == word for argument in argv for _, found in _PLACEHOLDER_PATTERN.findall(argument)
    )


def fill_placeholders(argv: Iterable[str], told: dict[str, str]) -> tuple[str, ...]:
    """The command with everything put in. Each argument stays one argument, whatever is put in; unknown is empty."""

    def put(match: re.Match[str]) -> str:
        return match[1] or told.get(match[2], "").replace("\0", "")

    return tuple(_PLACEHOLDER_PATTERN.sub(put, argument) for argument in argv)


class PlaceholderValues:
    """What can be said of the events of one run. What is not known is not said."""

    def __init__(
        self, fold: Accumulator, run_id: str | None = None, cwd: str | None = None
    ) -> None:
        self._accumulator, self._run_id, self._fallback_cwd = fold, run_id, cwd

    def for_event(self, event: ev.Event) -> dict[str, str]:
        """Of one event, which the fold has taken in."""
        found = {**self.for_run(str(type(event).__struct_config__.tag)), "line": str(event.line)}
        for name in COPIED_FIELDS:
            value = getattr(event, name, None)
            if isinstance(value, str | int):
                found[name] = str(value)
        if isinstance(event, ev.ToolCall | ev.ToolResult):
            found["call"] = event.id
        if isinstance(event, ev.ToolCall):
            found["tool"] = event.name
        elif "call" in found and "tool" not in found:
            call = self._accumulator.calls.get(found["call"])
            found |= {"tool": call.name} if call is not None else {}
        if isinstance(event, ev.FileChanged):
            found |= self._file_values(event.path)
        return found

    def for_run(self, kind: str) -> dict[str, str]:
        """Of every event, and of the end."""
        about = {
            "session_id": self._accumulator.session,
            "run_id": self._run_id,
            "cwd": self._agent_cwd,
        }
        return {
            "event": kind,
            **{name: value for name, value in about.items() if value is not None},
        }

    @property
    def _agent_cwd(self) -> str | None:
        started = self._accumulator.started
        return (started.cwd if started is not None else None) or self._fallback_cwd

    def _file_values(self, path: str) -> dict[str, str]:
        """A file, by names that no program takes for an option."""
        relative, absolute, _ = resolve_path(path, self._agent_cwd)
        names = {"path": absolute, "relative": relative, "name": posixpath.basename(absolute)}
        return {key: f"./{name}" if name.startswith("-") else name for key, name in names.items()}


MAX_QUEUED_BYTES = (
    16 << 20
)  # bytes of events whose commands may wait for their turn: beyond that events are left out, and counted
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
        self._needs_verdict = wish.event_filter.kind in ("result", END_EVENT) or uses_placeholder(
            wish.argv, "verdict"
        )
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
        self._loop.start(
            ProcessCommand(argv, stdin=body + b"\n"),
            lambda tick: self._on_record(argv, tick),
            keep_orphans=True,
        )

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


READ_CHUNK_BYTES = 1 << 16  # bytes a read
POLL_SECONDS = 0.07  # seconds between two looks at a tape


def run_hook(source: Path | int, agent: Agent | None, wish: HookSpec) -> HookRunner:
    """Do what is wished for the events of a tape or of a stream on a descriptor, until it and all commands are over."""
    with ProcessLoop() as loop:
        events = (
            RecordingSource(loop, source)
            if isinstance(source, Path)
            else StreamSource(loop, source, agent)
        )
        acting = HookRunner(loop, wish, events.parser)
        events.start(acting)
        loop.run(until=lambda: events.is_finished and acting.is_idle)
    return acting


class StreamSource:
    """A stream on a descriptor. `over` when all of it was read."""

    def __init__(self, loop: ProcessLoop, descriptor: int, agent: Agent | None) -> None:
        self.parser, self.is_finished = RunParser(agent), False
        self._loop, self._descriptor = loop, descriptor
        self._runner: HookRunner | None = None
        self._is_watched = False

    def start(self, acting: HookRunner) -> None:
        """Hand on what comes from now on."""
        self._runner = acting
        try:
            self._loop.watch(self._descriptor, self._read)
            self._is_watched = True
        except PermissionError:  # a file: it is always ready, and cannot be waited for
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        acting = self._runner
        if acting is None:
            return
        try:
            data = os.read(self._descriptor, READ_CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            acting.add(() if acting.is_done else self.parser.feed(data))
            if not self._is_watched:
                self._loop.call_soon(self._read)
            return
        if self._is_watched:
            self._loop.unwatch(self._descriptor)
        self.is_finished = True
        acting.add(self.parser.close())
        acting.finish()


class RecordingSource:
    """The tape of a run that goes on, or of one that is over."""

    def __init__(self, loop: ProcessLoop, path: Path) -> None:
        self._recording = RecordingFollower(path)
        header = self._recording.header
        if header is None:
            raise StenoError(f"{path}: not a tape")
        self.parser, self.is_finished = RunParser(agents.get_agent(header.agent)), False
        self.parser.begin_recording(header)
        self._run_id, self._loop = header.run_id, loop
        self._runner: HookRunner | None = None

    def start(self, acting: HookRunner) -> None:
        """Hand on what is there, and what comes from now on."""
        self._runner = acting
        self._poll()

    def _poll(self) -> None:
        acting = self._runner
        if acting is None:
            return
        goes_on = (
            self._run_id is not None and get_active_run(self._run_id) is not None
        )  # asked before it is read
        for tick in self._recording.records():
            events = self.parser.interpret_record(tick)
            self.parser.accumulator.add(events)
            acting.add(events)
        if goes_on and not self._recording.is_ended and not acting.is_done:
            self._loop.call_later(POLL_SECONDS, self._poll)
            return
        self.is_finished = True
        rest = self.parser.flush()
        self.parser.accumulator.add(rest)
        acting.add(rest)
        acting.finish()
