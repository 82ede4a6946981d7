"""The short way from a line to a scribe, for the lines that make up nearly all of a stream or a transcript.

Only what a scribe takes down is decoded: one block of the model's, or the plain answer of a tool. Whatever is not as plain
as that goes the way of every line, `Reader.read`, which says the same of these.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from msgspec import Raw, Struct, defstruct, field

from ...decode import MISFIT, decoder
from ...event import NO_JSON, FileChanged, Usage
from ..scribe import Odd, Scribe
from .blocks import may_refuse
from .lines import Instant, RequestUsage
from .names import AWAY, BESIDE, LAUNCHES, TOOLS, WRITES

if TYPE_CHECKING:
    from .reader import Reader


class Call(Struct, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw = NO_JSON


class Words(Struct, gc=False, tag_field="type", tag="text"):
    text: str


class Thought(Struct, gc=False, tag_field="type", tag="thinking"):
    pass


class Answer(Struct, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: Raw = NO_JSON
    is_error: bool = False


class Said(Struct, gc=False, kw_only=True, tag_field="role", tag="assistant"):
    """One block of the model's."""

    model: str
    id: str
    content: tuple[Call | Words | Thought]
    stop_reason: str | None = None
    usage: RequestUsage


class Heard(Struct, gc=False, tag_field="role", tag="user"):
    """One answer of a tool."""

    content: tuple[Answer]


class Done(Struct, gc=False, rename="camel"):
    """A structured result. One that says more than what was done, of work beside the main thread, does not fit."""

    type: str | None = None
    file_path: str | None = None
    error: str | None = None
    background_task_id: None = None
    is_async: None = None
    agent_id: None = None
    shell_id: None = None


class SaidLine(Struct, gc=False, kw_only=True, tag_field="type", tag="assistant"):
    """A line of stdout. The fields stand in the order in which they are printed: the decoder looks there first."""

    message: Said
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str | None = None
    timestamp: Instant | None = None


class HeardLine(Struct, gc=False, kw_only=True, tag_field="type", tag="user"):
    message: Heard
    parent_tool_use_id: str | None = None
    session_id: str
    timestamp: Instant | None = None
    tool_use_result: Done | str | list[Raw] | None = None


class Kept(Struct, gc=False, kw_only=True):
    """A line of a transcript, in the order of writing."""

    isSidechain: bool = False
    agentId: str | None = None
    message: Said | Heard | None = None
    type: str = ""
    uuid: str | None = None
    timestamp: Instant | None = None
    tool_use_result: Done | str | list[Raw] | None = field(name="toolUseResult", default=None)
    session_id: str = field(name="sessionId")
    parent_tool_use_id: str | None = None


# Lines of other kinds are told from these without an error on the way.
_others = [defstruct(name.title(), [], gc=False, tag_field="type", tag=name) for name in BESIDE]
stream = decoder(Union[SaidLine, HeardLine, *_others]).decode
kept = decoder(Kept).decode
MEANT: dict[tuple[type, str], type] = {(Said, "assistant"): SaidLine, (Heard, "user"): HeardLine}


class UnfitError(Exception):
    """A line is not as plain as it looked."""


UNFIT = (*MISFIT, UnfitError)


def dictate(reader: "Reader", lines: Iterable[bytes], number: int, odd: Odd, scribe: Scribe) -> int:
    """The loop that everything waits for: nothing stands in it that a line can do without. See `scribe.dictate`."""
    call, answer, say, use = scribe.call, scribe.answer, scribe.say, scribe.use
    decode, writes, tools = reader.short, reader.writes, TOOLS
    transcript, session, model = decode is kept, None, None
    told, output, stop = reader.told
    line: Any
    for data in lines:
        number += 1
        try:
            line = decode(data)
            kind: Any = MEANT.get((type(line.message), line.type)) if transcript else type(line)
            if kind is HeardLine:
                (block,) = line.message.content
                id_ = block.tool_use_id
                if block.is_error:
                    if not may_refuse(data):
                        writes.pop(id_, None)
                        scribe.fail(line.timestamp, id_, block.content)
                        continue
                elif id_ not in writes:
                    answer(line.timestamp, id_)
                    continue
                elif (path := _written(line.tool_use_result)) is not None:
                    del writes[id_]
                    answer(line.timestamp, id_)
                    change = "created" if line.tool_use_result.type == "create" else "modified"
                    parent = line.parent_tool_use_id
                    if transcript and line.isSidechain and parent is None:
                        parent = reader.whose(line.agentId)
                    scribe.add((FileChanged(number, line.session_id, parent, line.timestamp, path, change, id_),))
                    continue
            elif kind is SaidLine:
                message, at, parent = line.message, line.timestamp, line.parent_tool_use_id
                usage, said = message.usage, message.id
                if transcript and line.isSidechain and parent is None:
                    parent = reader.whose(line.agentId)
                if said != told or usage.output_tokens != output or message.stop_reason != stop:
                    if message.model == "<synthetic>":
                        raise UnfitError
                    told, output, stop = said, usage.output_tokens, message.stop_reason
                    if message.model != model:
                        model = message.model  # one object per name: a report holds thousands of each
                    if line.session_id != session:
                        session = line.session_id
                    details, cache = usage.output_tokens_details, usage.cache_creation
                    thought = None if details is None else details.thinking_tokens
                    hour = None if cache is None else cache.ephemeral_1h_input_tokens
                    new, write, read = usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens
                    end, uuid = stop is not None, line.uuid
                    use(Usage(number, session, parent, at, said, model, new, write, read, output, thought, hour, end, stop, uuid))
                elif message.model != model:
                    raise UnfitError
                (block,) = message.content
                kind = type(block)
                if kind is Call:
                    id_ = block.id
                    tool, group, role = tools[block.name]
                    if role:
                        if role == WRITES:
                            writes[id_] = (tool, block.input)
                        elif role != LAUNCHES or bytes(block.input).find(AWAY) >= 0:  # `in` costs ten times as much
                            raise UnfitError
                    call(number, line.session_id, parent, at, id_, tool, group, said, block.input)
                elif kind is Words:
                    say(number, line.session_id, parent, at, said, block.text)
                else:
                    scribe.think(at)
                continue
        except UNFIT:
            pass
        reader.told = told, output, stop
        try:
            scribe.add(reader.read(data, number))
        except MISFIT:
            scribe.add(odd(data, number))
        told, output, stop = reader.told
        decode, transcript = reader.short, reader.short is kept  # a transcript's first line changes it
    reader.told = told, output, stop
    return number


def _written(done: Done | str | list[Raw] | None) -> str | None:
    """The file that a write or an edit did change, where its result says so."""
    return done.file_path if type(done) is Done and not done.error else None
