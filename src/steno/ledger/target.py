"""What a tool call works on, as one line that can be stored: a path, a command, a pattern. Pure."""

from msgspec import Raw, Struct

from .. import event as ev
from ..decode import DECODE_ERRORS, decoder
from ..redact import redact_and_truncate

MAX_TARGET_CHARS = 300  # characters of what a call worked on


class _TargetFields(Struct, gc=False):
    command: str | None = None
    file_path: str | None = None
    notebook_path: str | None = None
    pattern: str | None = None
    url: str | None = None
    query: str | None = None
    description: str | None = None
    path: str | None = None


_decode_target = decoder(_TargetFields).decode


def target_of(given: Raw) -> str | None:
    """What a call works on, as one line that can be stored."""
    if given is ev.NO_JSON:
        return None
    try:
        asked = _decode_target(given)
    except DECODE_ERRORS:
        return None
    found = asked.file_path or asked.command or asked.notebook_path or asked.pattern or asked.url or asked.query
    found = found or asked.description or asked.path
    return redact_and_truncate(found, MAX_TARGET_CHARS) if found else None
