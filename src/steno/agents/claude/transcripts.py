"""The transcripts that Claude Code keeps: where they lie, and a short way through them for those who want only the sums.

It never opens a file. `usages` says of requests what the reader says, and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_first_object, decode_lenient, decoder
from . import blocks
from . import wire as ln
from .tables import IGNORED_LINE_TYPES


class UsageMessage(Struct, gc=False):
    model: str | None = None
    id: str | None = None
    stop_reason: str | None = None
    usage: ln.RequestUsage | None = None


class UsageLine(Struct, gc=False):
    """Of a line of a transcript, only what a request was and whose. In the order in which the program writes it."""

    isSidechain: bool | None = None
    cwd: str | None = None
    sessionId: str | None = None
    version: str | None = None
    agentId: str | None = None
    message: UsageMessage | None = None
    type: str = ""
    uuid: str | None = None
    timestamp: ln.Instant | None = None


_decode_usage_line = decoder(UsageLine).decode


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders below which transcripts lie: those that CLAUDE_CONFIG_DIR names, else both places of old and new."""
    given = environment.get("CLAUDE_CONFIG_DIR", "")
    if given:
        return [
            f"{folder.strip().rstrip('/')}/projects"
            for folder in given.split(",")
            if folder.strip()
        ]
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [f"{home}/.claude/projects", f"{config}/claude/projects"]


class _LineProbe(Struct, gc=False):
    session_id: str | None = None
    sessionId: str | None = None
    leafUuid: str | None = None
    type: str = ""


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a transcript, not of a stream: it says sessionId, or is of a kind that only files hold."""
    signed = decode_lenient(line, _LineProbe)
    if signed.session_id is not None:
        return False
    return (
        signed.sessionId is not None
        or signed.leafUuid is not None
        or signed.type in IGNORED_LINE_TYPES
    )


USAGE_KEY, MESSAGE_KEY, CONTENT_KEY, STOP_REASON_KEY, UUID_KEY = (
    b'"usage"',
    b'"message":',
    b'"content":',
    b'"stop_reason":',
    b'"uuid":',
)
SIDECHAIN_KEY, USER_TYPE_FIELD = b'"isSidechain":', b'"type":"user",'
USER_TYPE_LENGTH = len(USER_TYPE_FIELD)
NO_FINGERPRINT = (b"", 0, b"", 0, 0)
MESSAGE_SEARCH_BYTES = (
    400  # bytes of a line in which its message begins, where it is one of the usual shape
)


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a transcript tells of, and where it began.

    Most of its bytes are results of tools, which tell of no request, and most of its requests are told by several lines in
    the same bytes: such lines are not taken apart, unless it must be known who spoke after a message that was whole.
    """
    begun, whole = False, True  # who spoke before is not known
    head, before, tail, start, end = NO_FINGERPRINT
    last: dict[str | None, tuple[object, ...]] = {}
    for number, data in enumerate(lines, 1):
        if begun and not whole:
            at = data.find(
                MESSAGE_KEY, 0, MESSAGE_SEARCH_BYTES
            )  # a line is the user's by the words before it: only plain values stand there
            if at >= USER_TYPE_LENGTH and data[at - USER_TYPE_LENGTH : at] == USER_TYPE_FIELD:
                continue
            if (
                data[start:end] == tail
                and head
                and data[at - before : at - before + len(head)] == head
            ):
                continue
            if data.find(USAGE_KEY) < 0:  # `in` costs ten times as much
                continue
        try:
            line = _decode_usage_line(data)
        except DECODE_ERRORS:
            line = decode_first_object(data, UsageLine) or UsageLine()
        if not begun and line.version is not None and line.type in ("assistant", "user"):
            begun = True
            yield ev.Started(
                number,
                line.sessionId,
                None,
                line.timestamp,
                line.version,
                None,
                line.cwd,
                transcript=True,
            )
        parent = (line.agentId or "sidechain") if line.isSidechain else None
        if line.type == "user" and whole and parent in last:
            del last[parent]
            whole = False
            head, before, tail, start, end = NO_FINGERPRINT
            yield ev.UserMessage(number, line.sessionId, parent, line.timestamp, "synthetic")
        message = line.message
        if (
            line.type != "assistant"
            or message is None
            or message.usage is None
            or message.model == "<synthetic>"
        ):
            continue
        told = (message.id, message.stop_reason, message.usage.output_tokens)
        if last.get(parent) != told or message.id is None:
            last[parent] = told
            whole = message.stop_reason not in (None, "tool_use")
            share = ln.Message(message.model, message.id, None, message.stop_reason, message.usage)
            yield blocks.usage_event(
                number,
                line.sessionId,
                parent,
                line.timestamp,
                share,
                message.stop_reason,
                line.uuid,
            )
            head, before, tail, start, end = _fingerprint(data, message.id or "")


def _fingerprint(data: bytes, message: str) -> tuple[bytes, int, bytes, int, int]:
    """What the lines of one message share: its beginning, with its thread and its name, and its end, with what it used.

    Each with its place: the one from where the message begins, the other from the end of the line, where what follows is
    as long in all. Empty where a line is not written in the usual order.
    """
    thread, start = (
        data.find(SIDECHAIN_KEY, 0, MESSAGE_SEARCH_BYTES),
        data.find(MESSAGE_KEY, 0, MESSAGE_SEARCH_BYTES),
    )
    content, stop = (
        data.find(CONTENT_KEY, start, start + MESSAGE_SEARCH_BYTES),
        data.rfind(STOP_REASON_KEY),
    )
    used, end = data.find(USAGE_KEY, stop), data.find(UUID_KEY, stop)
    if (
        not message
        or not 0 <= thread < start < content < stop < used < end
        or data.find(message.encode(), start, content) < 0
    ):
        return NO_FINGERPRINT
    return data[thread:content], start - thread, data[stop:end], stop - len(data), end - len(data)
