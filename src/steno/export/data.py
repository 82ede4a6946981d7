"""A conversation for programs: one JSON object, or its report and steps as lines."""

from collections.abc import Iterator

import msgspec

from .conversation import Conversation

SCHEMA = "steno.conversation/1"

_encode = msgspec.json.Encoder().encode


def json_document(conversation: Conversation) -> Iterator[bytes]:
    """One object with the schema, the report, the steps of the evidence, and all steps."""
    yield b'{"schema":' + _encode(SCHEMA)
    yield b',"report":' + _encode(conversation.shareable_report())
    yield b',"evidence":' + _encode(_evidence(conversation)) + b',"steps":['
    for step in conversation:
        yield (b"," if step.number > 1 else b"") + _encode(step)
    yield b"]}\n"


def json_lines(conversation: Conversation) -> Iterator[bytes]:
    """A first line with the schema, the report and the evidence, then one step per line."""
    head = {
        "schema": SCHEMA,
        "report": conversation.shareable_report(),
        "evidence": _evidence(conversation),
    }
    yield _encode(head) + b"\n"
    for step in conversation:
        yield _encode(step) + b"\n"


def _evidence(conversation: Conversation) -> list[dict[str, int | None]]:
    return [{"line": line, "step": number} for line, number in conversation.evidence().items()]
