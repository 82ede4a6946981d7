"""The files that Copilot keeps of its sessions: where they lie, and a short way through them for the sums. It opens none."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ... import event as ev
from ...decode import MISFIT, lenient
from .reader import Reader

_SPENT = (b'"session.usage_record"', b'"session.start"', b'"session.resume"', b'"subagent.started"')  # what a sum must know
_ONLY_KEPT = frozenset({"session.start", "session.resume", "session.usage_record", "session.shutdown", "system.message"})


def folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folder below which the files of its sessions lie."""
    root = (environment.get("COPILOT_HOME") or f"{home}/.copilot").rstrip("/")
    return [f"{root}/session-state"]


def beside(session: str) -> str:
    """The file of a session, below the folder."""
    return f"{session}/events.jsonl"


class _Signed(Struct, gc=False):
    type: str = ""


def keeps(line: bytes) -> bool:
    """Whether a line is one of a file that it keeps: these open with the start of the session, which no stream tells."""
    return lenient(line, _Signed).type in _ONLY_KEPT


def usages(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a file tells of, and where it began. Most of its bytes are of neither."""
    reader = Reader()
    for number, data in enumerate(lines, 1):
        if not any(mark in data for mark in _SPENT):
            continue
        try:
            found = reader.read(data, number)
        except MISFIT:
            found = _tolerant(reader, data, number)
        yield from (event for event in found if isinstance(event, ev.Usage | ev.Started))


def _tolerant(reader: Reader, data: bytes, number: int) -> list[ev.Event]:
    try:
        return reader.salvage(data, number)
    except MISFIT:
        return []
