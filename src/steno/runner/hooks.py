"""Delivery of events to sinks and hook commands, in the background where they may block."""

import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec import Struct

from .. import event as ev
from ..errors import StenoError
from ..recording.parse import RunParser
from ..report import resolve_path

SinkT = TypeVar("SinkT")


def deliver(sinks: list[SinkT], send: Callable[[SinkT], object], warnings: list[str]) -> None:
    """Call `send` for each sink; one that raises is removed from `sinks`, with a warning."""
    for sink in list(sinks):
        try:
            send(sink)
        except Exception as error:  # a failing listener must not stop the run
            sinks.remove(sink)
            warnings.append(f"event sink failed and was removed: {type(error).__name__}: {error}")


ItemT = TypeVar("ItemT")


class BackgroundQueue(Generic[ItemT]):
    """Passes items to `consume` one by one; `limit` is in the unit of the sizes given to `put`.

    An item larger than the limit is accepted by an empty queue. After an exception in `consume`,
    kept in `problem`, items are dropped. `idle` is called after `every` seconds without an item.
    """

    def __init__(
        self,
        consume: Callable[[ItemT], None],
        limit: int,
        name: str,
        idle: Callable[[], None] | None = None,
        every: float | None = None,
    ) -> None:
        self.problem: Exception | None = None
        self._consume = consume
        self._limit = limit
        self._idle = idle
        self._idle_interval = every if idle is not None else None
        self._queue: SimpleQueue[tuple[ItemT, int] | None] = SimpleQueue()
        # Each counter has one writing thread, so none needs a lock.
        self._size_in = 0
        self._size_out = 0
        self._count_in = 0
        self._count_out = 0
        self._rejected_count = 0
        self._discarded_count = 0
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, item: ItemT, size: int) -> bool:
        """Queue an item; False if it is dropped because the queue is full or has failed."""
        waiting = self._size_in - self._size_out
        if self.problem is not None or (waiting and waiting + size > self._limit):
            self._rejected_count += 1
            return False
        self._size_in += size
        self._count_in += 1
        self._queue.put((item, size))
        return True

    @property
    def pending_count(self) -> int:
        """Items not consumed yet."""
        return self._count_in - self._count_out

    @property
    def dropped_count(self) -> int:
        """Items that were never consumed."""
        return self._rejected_count + self._discarded_count

    def finish(self, timeout: float | None) -> bool:
        """Wait until the queue is empty; False after `timeout` seconds."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- in the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                entry = self._queue.get(timeout=self._idle_interval)
            except Empty:
                self._run_idle()
                continue
            if entry is None:
                return
            item, size = entry
            try:
                if self.problem is None:
                    self._consume(item)
            except Exception as error:
                self.problem = error
            if self.problem is not None:
                self._discarded_count += 1
            self._size_out += size
            self._count_out += 1

    def _run_idle(self) -> None:
        if self._idle is not None:
            try:
                self._idle()
            except Exception as error:
                self.problem = error
                self._idle = None
                self._idle_interval = None


if TYPE_CHECKING:
    import subprocess

    from ..process.process_tree import CommandGuard

MAX_QUEUED_BYTES = 16 << 20  # of events whose commands are waiting; more are dropped and counted
MAX_SHOWN_COMMAND_CHARS = 200  # of a failed command: a placeholder can be a whole answer
KILL_DELAY_SECONDS = 2.0  # between SIGTERM and SIGKILL
END_EVENT = "end"  # not an event of the agent: the run has ended and has a verdict
HOOK_EVENTS = (*ev.EVENT_KINDS, END_EVENT)
# Fields compared with the patterns, by event. Other events take no filter.
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
    "alert": ("kind", "level"),
    "exited": ("code",),
    "unknown": ("kind",),
    "result": ("verdict",),
    END_EVENT: ("verdict",),
}
# Placeholders of a command and their help texts.
PLACEHOLDERS = {
    "event": "event name",
    "session_id": "session ID",
    "run_id": "run ID, if recorded",
    "cwd": "working directory of the agent",
    "path": "absolute path of the file",
    "relative": "path of the file relative to cwd; empty outside of it",
    "name": "name of the file or hook",
    "change": "created, modified or deleted",
    "tool": "tool name",
    "call": "tool call ID",
    "verdict": "verdict so far",
    "status": "status of a limit, retry, failure or task",
    "error": "error that caused a retry",
    "kind": "kind of failure, task, notice, message or alert",
    "level": "level of an alert, such as 0.8",
    "text": "text of an answer or stderr line",
    "model": "model",
    "code": "exit code",
    "trigger": "trigger of a compaction",
    "why": "reason for a stop request",
    "line": "line number in stdout",
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
)  # event fields with the name of their placeholder
_PLACEHOLDER_PATTERN = re.compile(r"\{(\{[a-z_]+\})\}|\{([a-z_]+)\}")


encode = msgspec.json.Encoder().encode


class EventFilter(Struct, frozen=True):
    """An event kind and optional patterns."""

    kind: str
    patterns: tuple[str, ...] = ()

    def matches(self, values: dict[str, str]) -> bool:
        """Whether the placeholder values of an event of this kind match a pattern.

        A file outside the folder matches only a pattern that is an absolute path.
        """
        given = self.patterns
        if self.kind == "file_change" and "relative" not in values:
            given = tuple(pattern for pattern in given if pattern.startswith("/"))
            if not given:
                return False
        if not given:
            return True
        texts = [values[name] for name in FILTER_FIELDS[self.kind] if name in values]
        # Brackets are literal, as in pages/[id].tsx.
        patterns = [pattern.replace("[", "[[]") for pattern in given]
        return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def parse_event_filter(text: str) -> EventFilter:
    """Parse EVENT[:PATTERN,...]; StenoError for an unknown event or one without filters."""
    kind, colon, rest = text.partition(":")
    if kind not in HOOK_EVENTS:
        from difflib import get_close_matches

        matches = get_close_matches(kind, HOOK_EVENTS, 3, 0.5)
        hint = f"did you mean {' or '.join(matches)}?" if matches else f"known: {_known_events()}"
        raise StenoError(f"unknown event {kind!r}; {hint}")
    patterns = tuple(filter(None, (part.strip() for part in rest.split(","))))
    if colon and not patterns:
        raise StenoError(f"{text}: no pattern after the colon")
    if patterns and kind not in FILTER_FIELDS:
        raise StenoError(f"{text}: {kind} events take no filter")
    return EventFilter(kind, patterns)


def _known_events() -> str:
    return ", ".join(HOOK_EVENTS)


def check_placeholders(argv: Iterable[str]) -> None:
    """StenoError for an unknown placeholder."""
    for argument in argv:
        for literal, name in _PLACEHOLDER_PATTERN.findall(argument):
            if not literal and name not in PLACEHOLDERS:
                raise StenoError(
                    f"unknown placeholder {{{name}}}; known: {', '.join(PLACEHOLDERS)}; "
                    f"for the literal text: {{{{{name}}}}}"
                )


def uses_placeholder(argv: Iterable[str], name: str) -> bool:
    return any(
        match == name for argument in argv for _, match in _PLACEHOLDER_PATTERN.findall(argument)
    )


def fill_placeholders(argv: Iterable[str], values: dict[str, str]) -> tuple[str, ...]:
    """The command with its placeholders filled. An argument stays one; unknown values are empty."""

    def fill(match: re.Match[str]) -> str:
        return match[1] or values.get(match[2], "").replace("\0", "")

    return tuple(_PLACEHOLDER_PATTERN.sub(fill, argument) for argument in argv)


class PlaceholderValues:
    """Placeholder values for the events of one run. Unknown values are left out."""

    def __init__(self, parser: RunParser) -> None:
        self._parser = parser

    def for_event(self, event: ev.Event) -> dict[str, str]:
        """The values for an event that the accumulator has already seen."""
        values = {**self.for_run(str(type(event).__struct_config__.tag)), "line": str(event.line)}
        for name in COPIED_FIELDS:
            value = getattr(event, name, None)
            if isinstance(value, str | int):
                values[name] = str(value)
        if isinstance(event, ev.ToolCall | ev.ToolResult):
            values["call"] = event.id
        if isinstance(event, ev.ToolCall):
            values["tool"] = event.name
        elif "call" in values and "tool" not in values:
            call = self._parser.accumulator.calls.get(values["call"])
            if call is not None:
                values["tool"] = call.name
        elif isinstance(event, ev.Alert):
            values["level"] = f"{event.level:g}"
        if isinstance(event, ev.FileChanged):
            values |= self._file_values(event.path)
        return values

    def for_run(self, kind: str) -> dict[str, str]:
        """The values that every event has, also `end`."""
        header = self._parser.header
        values = {
            "session_id": self._parser.accumulator.session,
            "run_id": header.run_id if header is not None else None,
            "cwd": self._agent_cwd,
        }
        known = {name: value for name, value in values.items() if value is not None}
        return {"event": kind, **known}

    @property
    def _agent_cwd(self) -> str | None:
        started = self._parser.accumulator.started
        if started is not None and started.cwd:
            return started.cwd
        return self._parser.accumulator.start_folder

    def _file_values(self, path: str) -> dict[str, str]:
        """The names of a file, none of which looks like an option."""
        relative, absolute, _ = resolve_path(path, self._agent_cwd)
        names = {"path": absolute, "name": posixpath.basename(absolute)}
        if not relative.startswith("/"):  # else the file is outside the folder
            names["relative"] = relative
        return {key: f"./{name}" if name.startswith("-") else name for key, name in names.items()}


class HookSpec(Struct, frozen=True):
    """A command for matching events; with `first_match_only`, for the first one."""

    event_filter: EventFilter
    argv: tuple[str, ...]
    first_match_only: bool = False

    @property
    def needs_verdict(self) -> bool:
        is_end = self.event_filter.kind in ("result", END_EVENT)
        return is_end or uses_placeholder(self.argv, "verdict")


class HookQueue:
    """Runs the commands of hooks one after another in a thread, without a shell.

    A command gets the event as JSON on stdin; its output goes to the stderr of this process.
    `on_failure` is called in the thread with a message.
    """

    def __init__(self, hooks: list[HookSpec], on_failure: Callable[[str], None]) -> None:
        self.hooks = hooks
        self.failed_count = 0
        self._on_failure = on_failure
        self._matched: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: CommandGuard | None = None
        self._is_killed = False
        self._queue: BackgroundQueue[tuple[tuple[str, ...], bytes]] = BackgroundQueue(
            self._run_command, MAX_QUEUED_BYTES, "steno hooks"
        )

    @property
    def dropped_count(self) -> int:
        """The number of events whose command was not run because too many were waiting."""
        return self._queue.dropped_count

    def accepts(self, hook: HookSpec) -> bool:
        """False for a hook that runs once and has."""
        return not (hook.first_match_only and id(hook) in self._matched)

    def put(self, hook: HookSpec, values: dict[str, str], body: bytes) -> None:
        """Queue the hook's command."""
        self._matched.add(id(hook))
        self._queue.put((fill_placeholders(hook.argv, values), body), len(body))

    def finish(self) -> None:
        """Wait until all queued commands have ended."""
        self._queue.finish(None)
        if self._guard is not None:
            self._guard.close()

    def kill(self) -> None:
        """Discard the queue and terminate the running command with all that it started."""
        self._is_killed = True
        for _ in range(2):  # one may have been about to start
            if self._guard is not None and self._process is not None:
                from ..process.process_tree import GracePeriods

                grace = GracePeriods(terminate=KILL_DELAY_SECONDS, kill=KILL_DELAY_SECONDS)
                self._guard.terminate(grace)
            if self._queue.finish(KILL_DELAY_SECONDS):
                break
        if self._guard is not None:
            self._guard.close()

    def _run_command(self, item: tuple[tuple[str, ...], bytes]) -> None:
        import subprocess  # loaded with the first command: it is slow

        from ..process.process_tree import CommandGuard

        argv, body = item
        if self._is_killed:
            return
        if self._guard is None:
            self._guard = CommandGuard("hook")
        output = subprocess.DEVNULL if sys.stderr is None else sys.stderr.fileno()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command
                argv,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **self._guard.env},
                start_new_session=True,
            )
            self._guard.add(self._process.pid)
            self._process.communicate(body + b"\n")
            code = self._process.returncode
        except (OSError, ValueError) as error:
            self._fail(argv, getattr(error, "strerror", None) or str(error))
        else:
            if code and not self._is_killed:
                self._fail(argv, f"exit code {code}" if code > 0 else f"killed by signal {-code}")
        finally:
            self._process = None

    def _fail(self, argv: tuple[str, ...], reason: str) -> None:
        self.failed_count += 1
        self._on_failure(f"command failed: {_shorten_command(argv)}: {reason}")


class HookRunner:
    """Matches the events of one run against hooks and queues their commands."""

    def __init__(self, queue: HookQueue, parser: RunParser) -> None:
        self._queue = queue
        self._parser = parser
        self._values = PlaceholderValues(parser)
        self._denied_call_ids: set[str] = set()
        self._is_finished = False

    def add(self, events: Iterable[ev.Event]) -> None:
        """Events that the parser's accumulator has already seen."""
        for event in events:
            if self._is_repeated_denial(event):
                continue
            for hook in self._queue.hooks:
                if type(event) is ev.EVENT_KINDS.get(hook.event_filter.kind):
                    self._run_if_matching(hook, self._values.for_event(event), encode(event))

    def _is_repeated_denial(self, event: ev.Event) -> bool:
        """Agents report the same denial several times."""
        if not isinstance(event, ev.PermissionDenied) or event.call is None:
            return False
        is_repeated = event.call in self._denied_call_ids
        self._denied_call_ids.add(event.call)
        return is_repeated

    def finish(self) -> None:
        """The run has ended. Later calls do nothing."""
        if self._is_finished:
            return
        self._is_finished = True
        for hook in self._queue.hooks:
            if hook.event_filter.kind == END_EVENT:
                self._run_if_matching(hook, self._values.for_run(END_EVENT), b"")

    def _run_if_matching(self, hook: HookSpec, values: dict[str, str], body: bytes) -> None:
        if not self._queue.accepts(hook):
            return
        if hook.needs_verdict:
            values["verdict"] = self._parser.report().verdict
        if hook.event_filter.matches(values):
            self._queue.put(hook, values, body or encode(values))


def _shorten_command(argv: tuple[str, ...]) -> str:
    text = " ".join(argv)
    return text if len(text) <= MAX_SHOWN_COMMAND_CHARS else f"{text[:MAX_SHOWN_COMMAND_CHARS]}…"
