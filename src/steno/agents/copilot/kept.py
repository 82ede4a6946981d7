"""The files that Copilot keeps of its sessions: where they lie, and a short way through them for the sums. It opens none."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ... import event as ev
from ...decode import DECODE_ERRORS, decode_lenient
from .reader import CopilotReader

_USAGE_MARKERS = (b'"session.usage_record"', b'"session.start"', b'"session.resume"', b'"subagent.started"')  # what a sum must know
_TRANSCRIPT_ONLY_TYPES = frozenset({"session.start", "session.resume", "session.usage_record", "session.shutdown", "system.message"})


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folder below which the files of its sessions lie."""
    root = (environment.get("COPILOT_HOME") or f"{home}/.copilot").rstrip("/")
    return [f"{root}/session-state"]


def transcript_pattern(session: str) -> str:
    """The file of a session, below the folder."""
    return f"{session}/events.jsonl"


class _LineProbe(Struct, gc=False):
    type: str = ""


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a file that it keeps: these open with the start of the session, which no stream tells."""
    return decode_lenient(line, _LineProbe).type in _TRANSCRIPT_ONLY_TYPES


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a file tells of, and where it began. Most of its bytes are of neither."""
    reader = CopilotReader()
    for number, data in enumerate(lines, 1):
        if not any(mark in data for mark in _USAGE_MARKERS):
            continue
        try:
            found = reader.read(data, number)
        except DECODE_ERRORS:
            found = _read_lenient(reader, data, number)
        yield from (event for event in found if isinstance(event, ev.Usage | ev.Started))


def _read_lenient(reader: CopilotReader, data: bytes, number: int) -> list[ev.Event]:
    try:
        return reader.read_lenient(data, number)
    except DECODE_ERRORS:
        return []
