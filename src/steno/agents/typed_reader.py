"""Shared parts of readers: the skeleton for one-struct lines, open calls, counters. Pure."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Raw, Struct
from msgspec.json import encode

from ..codec.decode import DECODE_ERRORS, decode_lenient, decoder
from ..event import NO_JSON, Event, ModelUsage, Usage
from .base import LineReader, read_objects_lenient

LineT = TypeVar("LineT", bound=Struct)
StateT = TypeVar("StateT", bound=Struct)


class TypedLineReader(ABC, Generic[LineT, StateT]):
    """A `LineReader` for lines of `line_type`; `state` is what must survive between two lines."""

    def __init__(self, line_type: type[LineT], state: StateT) -> None:
        self._line_type = line_type
        self._decode_line = decoder(line_type).decode
        self._state = state

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        return self._events(self._decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        return self._events(decode_lenient(data, self._line_type), data, number, at)

    def state(self) -> bytes:
        """Return the state as JSON, to continue with later lines of the same file."""
        return encode(self._state)

    def restore(self, state: bytes) -> None:
        """Continue from a stored state."""
        self._state = decoder(type(self._state)).decode(state)

    @abstractmethod
    def _events(
        self, line: LineT, data: bytes, number: int, at: datetime | None
    ) -> list[Event]: ...


def scan_events(
    reader: LineReader,
    lines: Iterable[bytes],
    kinds: tuple[type[Event], ...],
    markers: tuple[bytes, ...] = (),
) -> Iterator[Event]:
    """Yield the events of some kinds. With `markers`, only lines that contain one are decoded."""
    for number, data in enumerate(lines, 1):
        if markers and not any(marker in data for marker in markers):
            continue
        try:
            events = reader.read(data, number)
        except DECODE_ERRORS:
            events = read_objects_lenient(reader, data, number)
        for event in events:
            if isinstance(event, kinds):
                yield event


class PendingCall(Struct, gc=False):
    """A call without a result yet. `id` is unique within the run."""

    id: str
    tool: str = ""
    input: Raw = NO_JSON


class CallTracker:
    """The calls of one run. Of a call, it stores only what the result does not repeat."""

    def __init__(self) -> None:
        self._use_counts: dict[str, int] = {}
        self._pending: dict[str, PendingCall] = {}

    def open(self, agent_id: str, tool: str, input_: Raw) -> str:
        """Return a unique id: the agent's own, numbered if an earlier call had the same one."""
        pending = self._pending.get(agent_id)
        if pending is not None:
            return pending.id
        uses = self._use_counts.get(agent_id, 0) + 1
        self._use_counts[agent_id] = uses
        id_ = agent_id if uses == 1 else f"{agent_id}#{uses}"
        self._pending[agent_id] = PendingCall(id_, tool, input_)
        return id_

    def close(self, agent_id: str) -> PendingCall:
        """Return the call that a result belongs to; a bare one if the call was never seen."""
        return self._pending.pop(agent_id, None) or PendingCall(agent_id)


def subtract_counters(total: int | None, *parts: int | None) -> int | None:
    """A total without some of its parts, at least 0; unknown if one of them is."""
    rest = total
    for part in parts:
        if rest is None or part is None:
            return None
        rest -= part
    return None if rest is None else max(0, rest)


def uncached_input(total: int | None, cached: int | None, written: int | None = 0) -> int | None:
    """The input that was neither read from nor written to the cache; `total` includes both."""
    return subtract_counters(total, cached, written)


def add_counters(*parts: int | None) -> int | None:
    """The sum of counters; unknown if one of them is."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def sum_usage(requests: Iterable[Usage | ModelUsage]) -> ModelUsage:
    """The requests added up; cache writes, which these agents do not report, are 0."""
    parts = list(requests)
    return ModelUsage(
        input=add_counters(*(part.input for part in parts)),
        cache_write=0,
        cache_read=add_counters(*(part.cache_read for part in parts)),
        output=add_counters(*(part.output for part in parts)),
        reasoning=add_counters(*(part.reasoning for part in parts)),
    )


def sum_usage_by_model(requests: Sequence[Usage], models: Iterable[str]) -> dict[str, ModelUsage]:
    """Each model's share of the requests."""
    own: dict[str, list[Usage]] = {model: [] for model in models}
    for request in requests:
        if request.model in own:
            own[request.model].append(request)
    return {model: sum_usage(part) for model, part in own.items()}


# Verdicts for the exit codes of fatal errors; the run has no result then.
EXIT_CODE_VERDICTS = {
    41: "auth",
    42: "subprocess",
    44: "subprocess",
    52: "subprocess",
    53: "max_turns",
    54: "subprocess",
}


_JSON_MESSAGE_PATTERN = re.compile(r'\s+"message": (".*"),?$')


class ServiceError(Struct, gc=False):
    message: str | None = None


class ServiceErrorDocument(Struct, gc=False):
    error: ServiceError | None = None


def error_headline(errors: Sequence[str], noise: re.Pattern[str]) -> str:
    """The reason in the lines of stderr: the message of a JSON document, else all but noise."""
    for line in reversed(errors):
        match = _JSON_MESSAGE_PATTERN.match(line)
        if match is not None:
            return _service_message(
                decode_lenient(b'{"message":%s}' % match[1].encode(), ServiceError).message or ""
            )
    return "\n".join(line for line in errors if not noise.match(line)).strip()


def _service_message(text: str) -> str:
    """The message in an error of the service, which may itself be a JSON document."""
    try:
        document = decode_lenient(text.encode(), ServiceErrorDocument)
    except DECODE_ERRORS:
        return text
    return (document.error and document.error.message) or text


def allow_rule(tool: str, input_: Any, cwd: str | None, reason: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have allowed a denied call."""
    command = input_.get("command") if isinstance(input_, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool


def approval_mode(mode: str | None, aliases: dict[str, str]) -> str | None:
    """The agent's own name for a permission mode."""
    return None if mode is None else aliases.get(mode, mode)
