"""The baseline: msgspec decodes only the fields that a tracker needs, and keeps no state.

The fields are in the order in which Claude Code prints them, which is fastest for msgspec.
"""

from __future__ import annotations

import msgspec


class Input(msgspec.Struct, gc=False):
    file_path: str = ""
    notebook_path: str = ""


class Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    input: Input | None = None
    text: str = ""
    tool_use_id: str = ""
    is_error: bool = False


class Usage(msgspec.Struct, gc=False):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class Message(msgspec.Struct, gc=False):
    model: str = ""
    id: str = ""
    content: list[Block] | str = ""
    usage: Usage | None = None


class ModelUsage(msgspec.Struct, gc=False, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cost: float = msgspec.field(default=0.0, name="costUSD")


class Event(msgspec.Struct, gc=False):
    type: str = ""
    subtype: str = ""
    message: Message | None = None
    parent_tool_use_id: str | None = None
    session_id: str = ""
    timestamp: str = ""
    tool_use_result: msgspec.Raw = msgspec.Raw()
    total_cost_usd: float = 0.0
    usage: Usage | None = None
    model_usage: dict[str, ModelUsage] = msgspec.field(default_factory=dict, name="modelUsage")
    is_error: bool = False
    num_turns: int = 0
    result: str = ""
    duration_ms: int = 0
    model_usage_since_last_result: dict[str, ModelUsage] = {}


decode = msgspec.json.Decoder(Event).decode
