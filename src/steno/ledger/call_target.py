"""The target of a tool call as one line: a path, a command, a pattern."""

from msgspec import Raw, Struct

from ..codec.decode import DECODE_ERRORS, decoder
from ..codec.redact import redact_and_truncate
from ..event import NO_JSON

MAX_TARGET_CHARS = 300


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


def target_of(input_: Raw) -> str | None:
    """Return the most telling field of a call's input, without secrets; None if there is none."""
    if input_ is NO_JSON:
        return None
    try:
        fields = _decode_target(input_)
    except DECODE_ERRORS:
        return None
    target = (
        fields.file_path
        or fields.command
        or fields.notebook_path
        or fields.pattern
        or fields.url
        or fields.query
        or fields.description
        or fields.path
    )
    return redact_and_truncate(target, MAX_TARGET_CHARS) if target else None
