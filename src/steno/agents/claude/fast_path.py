"""The short way from a line to a scribe, for the lines that make up nearly all of a stream or a transcript.

Only what a scribe takes down is decoded: one block of the model's, or the plain answer of a tool. Whatever is not as plain
as that goes the way of every line, `Reader.read`, which says the same of these.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from msgspec import Raw, Struct, defstruct, field

from ...codec.decode import DECODE_ERRORS, decoder
from ...event import NO_JSON, FileChanged, Usage
from ..sink import LineFallback, Sink
from .blocks import may_be_denial
from .tables import BACKGROUND_KEY, OTHER_STREAM_TYPES, ROLE_BACKGROUND, ROLE_FILE_WRITE, TOOLS
from .wire import Instant, RequestUsage

if TYPE_CHECKING:
    from .reader import ClaudeReader


class ToolUseBlock(Struct, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw = NO_JSON


class TextBlock(Struct, gc=False, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(Struct, gc=False, tag_field="type", tag="thinking"):
    pass


class ToolResultBlock(Struct, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: Raw = NO_JSON
    is_error: bool = False


class AssistantMessage(Struct, gc=False, kw_only=True, tag_field="role", tag="assistant"):
    """One block of the model's."""

    model: str
    id: str
    content: tuple[ToolUseBlock | TextBlock | ThinkingBlock]
    stop_reason: str | None = None
    usage: RequestUsage


class ToolResultMessage(Struct, gc=False, tag_field="role", tag="user"):
    """One answer of a tool."""

    content: tuple[ToolResultBlock]


class ToolOutcome(Struct, gc=False, rename="camel"):
    """A structured result. One that says more than what was done, of work beside the main thread, does not fit."""

    type: str | None = None
    file_path: str | None = None
    error: str | None = None
    background_task_id: None = None
    is_async: None = None
    agent_id: None = None
    shell_id: None = None


class AssistantLine(Struct, gc=False, kw_only=True, tag_field="type", tag="assistant"):
    """A line of stdout. The fields stand in the order in which they are printed: the decoder looks there first."""

    message: AssistantMessage
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str | None = None
    timestamp: Instant | None = None


class UserLine(Struct, gc=False, kw_only=True, tag_field="type", tag="user"):
    message: ToolResultMessage
    parent_tool_use_id: str | None = None
    session_id: str
    timestamp: Instant | None = None
    tool_use_result: ToolOutcome | str | list[Raw] | None = None


class FastTranscriptLine(Struct, gc=False, kw_only=True):
    """A line of a transcript, in the order of writing."""

    isSidechain: bool = False
    agentId: str | None = None
    message: AssistantMessage | ToolResultMessage | None = None
    type: str = ""
    uuid: str | None = None
    timestamp: Instant | None = None
    tool_use_result: ToolOutcome | str | list[Raw] | None = field(
        name="toolUseResult", default=None
    )
    session_id: str = field(name="sessionId")
    parent_tool_use_id: str | None = None


# Lines of other kinds are told from these without an error on the way.
_other_line_types = [
    defstruct(name.title(), [], gc=False, tag_field="type", tag=name) for name in OTHER_STREAM_TYPES
]
decode_stream_line = decoder(Union[AssistantLine, UserLine, *_other_line_types]).decode
decode_transcript_line = decoder(FastTranscriptLine).decode
LINE_TYPE_BY_MESSAGE: dict[tuple[type, str], type] = {
    (AssistantMessage, "assistant"): AssistantLine,
    (ToolResultMessage, "user"): UserLine,
}


class FastPathMissError(Exception):
    """A line is not as plain as it looked."""


FAST_PATH_ERRORS = (*DECODE_ERRORS, FastPathMissError)


def feed(
    reader: "ClaudeReader", lines: Iterable[bytes], number: int, odd: LineFallback, scribe: Sink
) -> int:
    """The loop that everything waits for: nothing stands in it that a line can do without. See `scribe.dictate`."""
    call, answer, say, use = scribe.tool_call, scribe.tool_result, scribe.text, scribe.usage
    decode, writes, tools = reader.fast_decoder, reader.pending_writes, TOOLS
    transcript, session, model = decode is decode_transcript_line, None, None
    told, output, stop = reader.last_usage_key
    line: Any
    for data in lines:
        number += 1
        try:
            line = decode(data)
            kind: Any = (
                LINE_TYPE_BY_MESSAGE.get((type(line.message), line.type))
                if transcript
                else type(line)
            )
            if kind is UserLine:
                (block,) = line.message.content
                id_ = block.tool_use_id
                if block.is_error:
                    if not may_be_denial(data):
                        writes.pop(id_, None)
                        scribe.tool_error(line.timestamp, id_, block.content)
                        continue
                elif id_ not in writes:
                    answer(line.timestamp, id_)
                    continue
                elif (path := _changed_path(line.tool_use_result)) is not None:
                    del writes[id_]
                    answer(line.timestamp, id_)
                    change = "created" if line.tool_use_result.type == "create" else "modified"
                    parent = line.parent_tool_use_id
                    if transcript and line.isSidechain and parent is None:
                        parent = reader.thread_of(line.agentId)
                    scribe.add(
                        (
                            FileChanged(
                                number, line.session_id, parent, line.timestamp, path, change, id_
                            ),
                        )
                    )
                    continue
            elif kind is AssistantLine:
                message, at, parent = line.message, line.timestamp, line.parent_tool_use_id
                usage, said = message.usage, message.id
                if transcript and line.isSidechain and parent is None:
                    parent = reader.thread_of(line.agentId)
                if said != told or usage.output_tokens != output or message.stop_reason != stop:
                    if message.model == "<synthetic>":
                        raise FastPathMissError
                    told, output, stop = said, usage.output_tokens, message.stop_reason
                    if message.model != model:
                        model = (
                            message.model
                        )  # one object per name: a report holds thousands of each
                    if line.session_id != session:
                        session = line.session_id
                    details, cache = usage.output_tokens_details, usage.cache_creation
                    thought = None if details is None else details.thinking_tokens
                    hour = None if cache is None else cache.ephemeral_1h_input_tokens
                    new, write, read = (
                        usage.input_tokens,
                        usage.cache_creation_input_tokens,
                        usage.cache_read_input_tokens,
                    )
                    end, uuid = stop is not None, line.uuid
                    use(
                        Usage(
                            number,
                            session,
                            parent,
                            at,
                            said,
                            model,
                            new,
                            write,
                            read,
                            output,
                            thought,
                            hour,
                            end,
                            stop,
                            uuid,
                        )
                    )
                elif message.model != model:
                    raise FastPathMissError
                (block,) = message.content
                kind = type(block)
                if kind is ToolUseBlock:
                    id_ = block.id
                    tool, group, role = tools[block.name]
                    if role:
                        if role == ROLE_FILE_WRITE:
                            writes[id_] = (tool, block.input)
                        elif (
                            role != ROLE_BACKGROUND or bytes(block.input).find(BACKGROUND_KEY) >= 0
                        ):  # `in` costs ten times as much
                            raise FastPathMissError
                    call(number, line.session_id, parent, at, id_, tool, group, said, block.input)
                elif kind is TextBlock:
                    say(number, line.session_id, parent, at, said, block.text)
                else:
                    scribe.thinking(at)
                continue
        except FAST_PATH_ERRORS:
            pass
        reader.last_usage_key = told, output, stop
        try:
            scribe.add(reader.read(data, number))
        except DECODE_ERRORS:
            scribe.add(odd(data, number))
        told, output, stop = reader.last_usage_key
        decode, transcript = (
            reader.fast_decoder,
            reader.fast_decoder is decode_transcript_line,
        )  # a transcript's first line changes it
    reader.last_usage_key = told, output, stop
    return number


def _changed_path(done: ToolOutcome | str | list[Raw] | None) -> str | None:
    """The file that a write or an edit did change, where its result says so."""
    return done.file_path if type(done) is ToolOutcome and not done.error else None
