"""Options of `run`, `watch` and `logs` about the stream: --on commands, and files of events."""

import argparse
import os
import shlex
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TextIO, TypeVar

import msgspec

from ..errors import StenoError
from ..event import Event
from ..runner.hooks import (
    FILTER_FIELDS,
    HOOK_EVENTS,
    PLACEHOLDERS,
    BackgroundQueue,
    HookQueue,
    HookSpec,
    check_placeholders,
    parse_event_filter,
)
from ..views.formatting import escape_json
from .ci_log import write_all
from .options import CommandParser

ItemT = TypeVar("ItemT")


def hook_help() -> str:
    """The part of a help text that lists events and placeholders."""
    events = [
        f"  {kind}{':' + ' or '.join(FILTER_FIELDS[kind]).upper() if kind in FILTER_FIELDS else ''}"
        for kind in HOOK_EVENTS
    ]
    placeholders = [
        f"  {{{name}}}{' ' * (12 - len(name))}{text}" for name, text in PLACEHOLDERS.items()
    ]
    return "\n".join(
        [
            "COMMAND of --on and --once is split like a shell command and run without a shell.",
            "It gets the event as JSON on stdin; its output goes to stderr. Commands run one after",
            "another. EVENT can have a filter: patterns with * and ?, separated by commas. Changed",
            "files outside the working directory need one that is an absolute path: /etc/*.",
            "",
            "events, with the field that a filter matches:",
            *events,
            "",
            "placeholders in COMMAND:",
            *placeholders,
        ]
    )


def add_hook_options(parser: CommandParser, reference: str = "steno watch --help") -> None:
    """--on and --once. `reference` says where events and placeholders are listed."""
    group = parser.add_argument_group(f"hooks (events and placeholders: {reference})")
    group.add_argument(
        "--on",
        nargs=2,
        action="append",
        default=[],
        metavar=("EVENT", "COMMAND"),
        help="run COMMAND on each matching event, e.g. file_change:*.py 'ruff check {path}'",
    )
    group.add_argument(
        "--once",
        nargs=2,
        action="append",
        default=[],
        metavar=("EVENT", "COMMAND"),
        help="run COMMAND on the first matching event only",
    )


def parse_hooks(options: argparse.Namespace) -> list[HookSpec]:
    """The hooks of the command line; StenoError for a bad event or command."""
    hooks = [_parse_hook("--on", event, command) for event, command in options.on]
    return [*hooks, *(_parse_hook("--once", event, command) for event, command in options.once)]


def _parse_hook(option: str, event: str, command: str) -> HookSpec:
    try:
        event_filter = parse_event_filter(event)
        argv = tuple(shlex.split(command))
        check_placeholders(argv)
    except StenoError as error:
        raise StenoError(f"{option}: {error}") from None
    except ValueError as error:  # unbalanced quotes
        raise StenoError(f"{option} {event}: {error} in {command!r}") from None
    if not argv:
        raise StenoError(f"{option} {event}: empty command")
    return HookSpec(event_filter, argv, first_match_only=option == "--once")


def finish_hooks(queue: HookQueue, warn: Callable[[str], None]) -> bool:
    """Wait for the commands; True if one failed or was not run."""
    queue.finish()
    if queue.dropped_count:
        warn(f"{queue.dropped_count} events dropped: too many commands waiting (--on)")
    return bool(queue.failed_count or queue.dropped_count)


POLL_SECONDS = 0.05


def drain_queue(
    queue: BackgroundQueue[ItemT], timeout: float, is_cancelled: Callable[[], bool]
) -> str | None:
    """Wait until a queue is empty; why it is not, or why it failed."""
    deadline = time.monotonic() + timeout
    while not queue.finish(POLL_SECONDS):
        if is_cancelled():
            return "interrupted"
        if time.monotonic() >= deadline:
            return f"timed out after {timeout:g} s"
    problem = queue.problem
    return None if problem is None else f"{type(problem).__name__}: {problem}"


MAX_PENDING_CHARS = 1 << 20
FLUSH_TIMEOUT_SECONDS = 30.0  # at the end: the terminal may be paused (Ctrl-S)
IDLE_INTERVAL_SECONDS = 0.2
MAX_PENDING_BYTES = 64 << 20

encode = msgspec.json.Encoder().encode


class StderrWriter(BackgroundQueue[bytes]):
    """A text stream for the live display, written by a thread.

    `live` allows redrawing a line if the stream is a terminal. The writing thread calls `idle`
    regularly. `max_pending` is in characters.
    """

    def __init__(
        self,
        stream: TextIO | None,
        live: bool,
        idle: Callable[[], None] | None = None,
        max_pending: int = MAX_PENDING_CHARS,
    ) -> None:
        self.encoding = stream.encoding if stream is not None else "ascii"
        self._stream = stream
        self._is_live = live
        self._fd = stream.fileno() if stream is not None else -1
        write = partial(write_all, self._fd)
        super().__init__(write, max_pending, "steno stderr", idle, IDLE_INTERVAL_SECONDS)

    def isatty(self) -> bool:
        return self._is_live and self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        return self._fd

    def write(self, text: str) -> int:
        if self._stream is not None and text:
            self.put(text.encode(self.encoding, "backslashreplace"), len(text))
        return len(text)

    def flush(self) -> None:
        """Does nothing: the thread writes without buffering."""

    def drain(self, timeout: float) -> None:
        """Wait until everything so far is written, or the timeout expires."""
        deadline = time.monotonic() + timeout
        while self.pending_count and self.problem is None and time.monotonic() < deadline:
            time.sleep(0.001)


class EventFile:
    """The target of --json-events: a file, a named pipe or an open descriptor."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._fd = _open_target(target)  # -1: a named pipe, opened by the thread
        self._lost_events = 0
        self._queue: BackgroundQueue[bytes] = BackgroundQueue(
            self._write, MAX_PENDING_BYTES, "steno events"
        )

    def put(self, events: list[Event]) -> None:
        if events:
            data = b"\n".join(map(encode, events)) + b"\n"
            if not self._queue.put(data, len(data)):
                self._lost_events += len(events)

    def finish(self) -> str | None:
        """Write all events, within a timeout; returns an error message or None."""
        is_done = self._queue.finish(FLUSH_TIMEOUT_SECONDS)
        error = self._queue.problem
        option = f"--json-events {self._target}"
        if error is not None:
            return f"{option}: {getattr(error, 'strerror', None) or error}"
        if self._lost_events:
            return f"{option}: {self._lost_events} events lost: the reader is too slow"
        return None if is_done else f"{option}: not all events written: the reader does not read"

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._target, os.O_WRONLY)
        write_all(self._fd, escape_json(data) if os.isatty(self._fd) else data)


def _open_target(target: str) -> int:
    if target.isdecimal():
        return _check_descriptor(int(target))
    with suppress(OSError):
        status = os.stat(target)  # noqa: PTH116  # pathlib would only wrap it
        if _is_stdin_or_stdout(status):
            raise StenoError(
                f"--json-events {target}: same file as stdin or stdout, which carry the stream; "
                "give another file"
            )
        if stat.S_ISFIFO(status.st_mode):
            return -1
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise StenoError(f"--json-events {target}: cannot write: {error.strerror}") from None


def _check_descriptor(number: int) -> int:
    if number < 2:
        raise StenoError(
            f"--json-events {number}: stdin and stdout carry the stream; "
            f"for a file of that name: ./{number}"
        )
    try:
        os.write(number, b"")
        status = os.fstat(number)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "out of range"
        raise StenoError(
            f"--json-events {number}: not a writable descriptor ({reason}); "
            f"for a file of that name: ./{number}"
        ) from None
    if _is_stdin_or_stdout(status):
        raise StenoError(
            f"--json-events {number}: same file as stdin or stdout, which carry the stream"
        )
    return number


def _is_stdin_or_stdout(status: os.stat_result) -> bool:
    """Whether it is the same file, pipe or socket as stdin or stdout. Devices may be shared."""
    for descriptor in (0, 1):
        with suppress(OSError):
            own_status = os.fstat(descriptor)
            if os.path.samestat(status, own_status) and not stat.S_ISCHR(status.st_mode):
                return True
    return False
