"""Transcripts of Claude Code: where they are stored, and a fast scan for their usage.

`scan_usage` gives the same requests as the reader, and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_lenient, iter_json_values
from . import other_lines, wire
from .tables import SIDE_LINE_TYPES, SYNTHETIC_MODEL

COST_STATE_MARKER = b'"type":"cost-state"'
_COST_STATE_START = b"{" + COST_STATE_MARKER
_ASSISTANT_MARKER = b'"type":"assistant"'
_MESSAGE_KEY = b'"message":'
_CONTENT_KEY = b'"content":'
_STOP_REASON_KEY = b'"stop_reason":'
_USAGE_KEY = b'"usage"'
_UUID_KEY = b'"uuid":'
_SIDECHAIN_KEY = b'"isSidechain":'
_USER_TYPE_FIELD = b'"type":"user",'
_MAX_HEAD_BYTES = 400  # a line of the usual shape has its message within these bytes


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders in CLAUDE_CONFIG_DIR, else both default locations (old and new versions)."""
    folders = environment.get("CLAUDE_CONFIG_DIR", "").split(",")
    if folders != [""]:
        return [f"{name.strip().rstrip('/')}/projects" for name in folders if name.strip()]
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [f"{home}/.claude/projects", f"{config}/claude/projects"]


def transcript_pattern(session: str) -> str:
    """The main transcript of a session, below one of the folders."""
    return f"*/{session}.jsonl"


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is from a transcript: it has a sessionId, or a type only transcripts have."""
    head = decode_lenient(line, wire.LineDetails)
    if head.session_id is not None:
        return False
    return head.sessionId is not None or head.leafUuid is not None or head.type in SIDE_LINE_TYPES


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests in a transcript, and where it started.

    Most bytes are tool results, and most requests are repeated by several lines with the same
    bytes. Such lines are not decoded, unless the next speaker after a complete message must be
    known.
    """
    has_started = False
    is_complete = True  # the last message may have been the last of its turn
    pattern = _NO_PATTERN
    last_usage: dict[str | None, tuple[object, ...]] = {}  # by thread
    for number, data in enumerate(lines, 1):
        if data.startswith(_COST_STATE_START):
            session = decode_lenient(data, wire.LineDetails).sessionId
            yield other_lines.cost_state(data, (number, session, None, None))
            continue
        if has_started and not is_complete and _is_redundant(data, pattern):
            continue
        line = _decode_line(data)
        head: ev.EventHead = (number, line.session_id, None, line.timestamp)
        if not has_started and line.type in ("assistant", "user"):
            details = _details_of(data)
            if details.version is not None:
                has_started = True
                yield other_lines.transcript_started(head, details)
        parent = (line.agentId or "sidechain") if line.isSidechain else None
        if line.type == "user" and is_complete and parent in last_usage:
            del last_usage[parent]
            is_complete = False
            pattern = _NO_PATTERN
            yield ev.UserMessage(number, line.session_id, parent, line.timestamp, "synthetic")
        message = line.message
        if line.type != "assistant" or type(message) is not wire.AssistantMessage:
            continue
        if message.usage is None:
            continue
        usage = (message.id, message.stop_reason, message.usage.output_tokens)
        if message.model == SYNTHETIC_MODEL or (
            last_usage.get(parent) == usage and message.id is not None
        ):
            continue
        last_usage[parent] = usage
        is_complete = message.stop_reason not in (None, "tool_use")
        pattern = _message_pattern(data, message.id or "")
        head = (number, line.session_id, parent, line.timestamp)
        yield other_lines.usage_event(
            *head, message.id, message.model, message.usage, message.stop_reason, line.uuid
        )


def _decode_line(data: bytes) -> wire.TranscriptLine[Any]:
    try:
        line: wire.TranscriptLine[Any] = wire.line_decoder(True, wire.ToolOutcome)(data)
    except DECODE_ERRORS:
        return _decode_lenient(_first_object(data))
    if line.type == "assistant" and type(line.message) is wire.UserMessage:
        return _decode_lenient(data)  # its role contradicts its type
    return line


def _decode_lenient(data: bytes) -> wire.TranscriptLine[Any]:
    details = decode_lenient(data, wire.LineDetails)
    return wire.TranscriptLine(
        isSidechain=details.isSidechain,
        session_id=details.sessionId,
        agentId=details.agentId,
        message=wire.decode_message_lenient(details),
        type=details.type,
        uuid=details.uuid,
        timestamp=details.timestamp,
    )


def _details_of(data: bytes) -> wire.LineDetails:
    try:
        return decode_lenient(data, wire.LineDetails)
    except DECODE_ERRORS:
        return decode_lenient(_first_object(data), wire.LineDetails)


def _first_object(data: bytes) -> bytes:
    try:
        return next((value for value in iter_json_values(data) if value[:1] == b"{"), b"{}")
    except (ValueError, *DECODE_ERRORS):
        return b"{}"


# What the lines of one message share: bytes before its content (thread and message id), their
# position relative to the message, bytes after the content (usage), and their start and end from
# the end of the line.
_MessagePattern = tuple[bytes, int, bytes, int, int]
_NO_PATTERN: _MessagePattern = (b"", 0, b"", 0, 0)


def _is_redundant(data: bytes, pattern: _MessagePattern) -> bool:
    """Whether a line is a user's, repeats the message before it, or has no usage."""
    # Only plain values come before the message, so the type there is the line's own.
    message = data.find(_MESSAGE_KEY, 0, _MAX_HEAD_BYTES)
    type_start = message - len(_USER_TYPE_FIELD)
    if type_start >= 0 and data[type_start:message] == _USER_TYPE_FIELD:
        return True
    head, distance, tail, start, end = pattern
    if head and data[start:end] == tail:
        head_start = message - distance
        if data[head_start : head_start + len(head)] == head:
            return True
    return data.find(_USAGE_KEY) < 0  # `in` costs ten times as much


def _message_pattern(data: bytes, message_id: str) -> _MessagePattern:
    """The pattern of a message's lines; empty if the line isn't written in the usual order."""
    thread = data.find(_SIDECHAIN_KEY, 0, _MAX_HEAD_BYTES)
    message = data.find(_MESSAGE_KEY, 0, _MAX_HEAD_BYTES)
    content = data.find(_CONTENT_KEY, message, message + _MAX_HEAD_BYTES)
    stop = data.rfind(_STOP_REASON_KEY)
    usage = data.find(_USAGE_KEY, stop)
    end = data.find(_UUID_KEY, stop)
    if (
        not message_id
        or not 0 <= thread < message < content < stop < usage < end
        or data.find(message_id.encode(), message, content) < 0
    ):
        return _NO_PATTERN
    size = len(data)
    return data[thread:content], message - thread, data[stop:end], stop - size, end - size


# -- totals of the session -------------------------------------------------------------------------

_TOTAL_COUNTERS = ("input", "cache_write", "cache_read", "output")


def find_earlier_totals(
    lines: Iterable[bytes], first_uuid: str | None, result: ev.Result
) -> ev.CostState | None:
    """The totals of the session before a run; None if unknown.

    Each process adds its totals at its end, and the next one continues from the last of them.
    `first_uuid` is that of the run's first message. The only lines may be totals: a recording
    keeps no others, and only those from before its run.
    """
    head = (0, result.session, None, None)
    first_id = None if first_uuid is None else f'"uuid":"{first_uuid}"'.encode()
    states = [ev.CostState(*head, 0, {})]
    started_at = None
    is_fork = False  # it begins with copied messages, which another file has counted
    has_messages = False
    is_found = False
    data = b""
    for data in lines:
        if COST_STATE_MARKER in data:
            states.append(other_lines.cost_state(data, head))
            continue
        if first_id is not None and first_id in data:
            is_found = True
            break
        started_at = started_at or _details_of(data).timestamp
        if not has_messages and _ASSISTANT_MARKER in data:
            has_messages = True
            at = _details_of(data).timestamp
            is_fork = at is not None and started_at is not None and at < started_at
    if is_fork or (has_messages and len(states) == 1):
        del states[0]  # unknown
    if not is_found and started_at is not None:
        return _totals_before_match(states, result)
    return replace(states[-1], is_earlier=True) if states and data else None


def _totals_before_match(states: list[ev.CostState], result: ev.Result) -> ev.CostState | None:
    """The totals before those that equal the result's.

    A run that used nothing repeats the totals before it: the result's usage tells the two apart.
    """
    own_tokens = sum(_counters(result.usage)) if result.usage is not None else 0
    for before, after in reversed(list(pairwise(states))):
        difference = _sum_shares(after.models) - _sum_shares(before.models)
        if _shares(after.models) == _shares(result.models) and difference >= own_tokens:
            return replace(before, is_earlier=True)
    return None


def _shares(models: dict[str, ev.ModelUsage] | None) -> dict[str, tuple[int, ...]]:
    return {name: _counters(share) for name, share in (models or {}).items()}


def _sum_shares(models: dict[str, ev.ModelUsage] | None) -> int:
    return sum(sum(counters) for counters in _shares(models).values())


def _counters(share: ev.ModelUsage) -> tuple[int, ...]:
    return tuple(getattr(share, name) or 0 for name in _TOTAL_COUNTERS)
