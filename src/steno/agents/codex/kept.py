"""The rollouts that Codex keeps: where they lie, and a short way through them for those who want only the sums.

It never opens a file. `usages` says of requests what the reader says, and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ... import event as ev
from ...decode import decode_first_object, decode_lenient
from . import lines as ln
from .rollout import RolloutReader

_USAGE_MARKERS = (b'"token_', b'"session_meta"', b'"turn_context"', b'"task_started"', b'"turn_started"')  # what a sum must know


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders below which rollouts lie, those that were put away included."""
    root = (environment.get("CODEX_HOME") or f"{home}/.codex").rstrip("/")
    return [f"{root}/sessions", f"{root}/archived_sessions"]


def transcript_pattern(session: str) -> str:
    """The rollout of a thread, below one of the folders."""
    return f"**/rollout-*-{session}.jsonl"


class _LineProbe(Struct, gc=False):
    timestamp: str | None = None
    payload: object = None


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a rollout: it has a time and a payload."""
    signed = decode_lenient(line, _LineProbe)
    return signed.timestamp is not None and isinstance(signed.payload, dict)


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a rollout tells of, and where it began. Most of its bytes are of neither."""
    rollout = RolloutReader()
    for number, data in enumerate(lines, 1):
        if not any(mark in data for mark in _USAGE_MARKERS):
            continue
        line = decode_first_object(data, ln.CodexLine)
        if line is not None and line.payload is not None:
            for event in rollout.events(line, data, number):
                if isinstance(event, ev.Usage | ev.Started):
                    yield event
