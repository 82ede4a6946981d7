"""Where Codex keeps its rollouts, and how to sum up their usage. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ... import event as ev
from ...codec.decode import decode_lenient
from ..typed_reader import scan_events
from .rollout import RolloutReader

# The lines that a usage sum needs.
_USAGE_MARKERS = (
    b'"token_',
    b'"session_meta"',
    b'"turn_context"',
    b'"task_started"',
    b'"turn_started"',
)


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders with rollouts, archived ones included."""
    root = (environment.get("CODEX_HOME") or f"{home}/.codex").rstrip("/")
    return [f"{root}/sessions", f"{root}/archived_sessions"]


def transcript_pattern(session: str) -> str:
    """The rollout of a session; newer versions compress old ones to `.jsonl.zst`."""
    return f"**/rollout-*-{session}.jsonl*"


class _LineProbe(Struct, gc=False):
    type: str | None = None
    timestamp: str | None = None
    record_type: str | None = None
    items: list[object] | None = None


def is_transcript_line(line: bytes) -> bool:
    """Whether a line belongs to a rollout: those of streams have no time, or no type."""
    probe = decode_lenient(line, _LineProbe)
    return probe.timestamp is not None or probe.record_type is not None or probe.items is not None


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests of a rollout and its start, skipping all other lines undecoded."""
    return scan_events(RolloutReader(is_whole=True), lines, (ev.Started, ev.Usage), _USAGE_MARKERS)
