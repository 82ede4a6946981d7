"""The session files of Copilot: where they are, and a scan for their usage. Pure.

Their lines are those of the stream, which `CopilotReader` reads, and more.
"""

from collections.abc import Mapping

from msgspec import Struct

from ...codec.decode import decode_lenient

# The lines that a usage sum needs.
_TRANSCRIPT_ONLY_TYPES = frozenset(
    {
        "session.start",
        "session.resume",
        "session.usage_record",
        "session.shutdown",
        "system.message",
    }
)


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    root = (environment.get("COPILOT_HOME") or f"{home}/.copilot").rstrip("/")
    return [f"{root}/session-state"]


def transcript_pattern(session: str) -> str:
    return f"{session}/events.jsonl"


class _LineProbe(Struct, gc=False):
    type: str = ""


def is_transcript_line(line: bytes) -> bool:
    return decode_lenient(line, _LineProbe).type in _TRANSCRIPT_ONLY_TYPES
