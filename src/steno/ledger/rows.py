"""Rows as parsed from a file, before they are merged into the ledger, and their ids."""

from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from .protocol import Row

MAX_INT64 = (1 << 63) - 1
PART_ID_STEP = 0x61C8_8646_80B5_83EB  # odd and without pattern, so that part ids don't collide
UNKNOWN_CONTEXT = -1  # size after a compaction that reports none: stored as NULL


# The field order of array_like structs is stored in `sources.state` and must not change.
class ParsedRequest(Struct, array_like=True, gc=False):
    """One request to a model."""

    id: int
    session: str
    run: str | None
    message: str | None
    parent: str | None
    model: str
    at: int
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write_1h: int = 0


class ParsedToolCall(Struct, array_like=True, gc=False):
    """One tool call, with its result if there is one."""

    id: int
    call: str
    session: str
    run: str | None
    request: int
    parent: str | None
    name: str
    kind: str
    target: str | None
    at: int
    duration_ms: int | None = None
    ok: bool | None = None
    denied: bool = False
    error: str | None = None


class FileChangeRow(Struct, array_like=True, gc=False):
    """A row of `changes`."""

    id: int
    session: str
    run: str | None
    call: str | None
    path: str
    inside: int
    change: str
    source: str
    at: int


class DenialRow(Struct, array_like=True, gc=False):
    """A row of `denials`."""

    id: int
    session: str
    run: str | None
    call: str | None
    tool: str | None
    reason: str | None
    rule: str | None
    at: int


class TextRow(Struct, array_like=True, gc=False):
    """A row of `texts`."""

    id: int
    session: str
    run: str | None
    parent: str | None
    role: str
    at: int
    text: str


class ParsedSession(Struct, gc=False):
    """What a file says about a session besides its requests."""

    agent_version: str | None = None
    project: str | None = None
    model: str | None = None
    title: str | None = None
    first_at: int | None = None
    last_at: int | None = None
    prompts: int = 0
    turns: int | None = None
    context_used: int | None = None
    context_limit: int | None = None
    context_peak: int | None = None
    compactions: int = 0
    reported_nano: int | None = None
    stop: str | None = None


class RowBatch(Struct):
    """All rows found in one file or run."""

    agent: str
    sessions: dict[str, ParsedSession]
    requests: list[ParsedRequest]
    calls: list[ParsedToolCall]
    changes: list[FileChangeRow]
    denials: list[DenialRow]
    texts: list[TextRow]
    is_from_start: bool = True  # False: continued from an earlier position in the file


class RequestRow(NamedTuple):
    """A row of `requests`: a request with its price. `kind` is request or rest (an adjustment)."""

    id: int
    agent: str
    session: str
    run: str | None
    kind: str
    message: str | None
    parent: str | None
    model: str
    at: int
    input: int
    cache_write: int
    cache_read: int
    output: int
    reasoning: int
    cache_write_1h: int
    cost_nano: int | None
    saved_nano: int
    source: str


REQUEST_COLUMNS = RequestRow._fields
CALL_COLUMNS = (*ParsedToolCall.__struct_fields__, "agent")
SESSION_COLUMNS = ("id", "agent", *ParsedSession.__struct_fields__)
CHANGE_COLUMNS = FileChangeRow.__struct_fields__
DENIAL_COLUMNS = DenialRow.__struct_fields__
TEXT_COLUMNS = TextRow.__struct_fields__


def request_row(
    agent: str,
    request: ParsedRequest,
    cost_nano: int | None,
    saved_nano: int,
    source: str,
    kind: str = "request",
) -> Row:
    """Return the fields of a RequestRow as a plain tuple, which sqlite3 writes 25 % faster."""
    return (
        request.id,
        agent,
        request.session,
        request.run,
        kind,
        request.message,
        request.parent,
        request.model,
        request.at,
        request.input,
        request.cache_write,
        request.cache_read,
        request.output,
        request.reasoning,
        request.cache_write_1h,
        cost_nano,
        saved_nano,
        source,
    )


def request_from_row(row: RequestRow) -> ParsedRequest:
    return ParsedRequest(**{name: getattr(row, name) for name in ParsedRequest.__struct_fields__})


def call_row(agent: str, call: ParsedToolCall) -> Row:
    """Return a row of `calls`. Booleans become 0 and 1, because PostgreSQL doesn't convert them."""
    return (
        call.id,
        call.call,
        call.session,
        call.run,
        call.request,
        call.parent,
        call.name,
        call.kind,
        call.target,
        call.at,
        call.duration_ms,
        None if call.ok is None else int(call.ok),
        int(call.denied),
        call.error,
        agent,
    )


def call_from_row(row: Row) -> ParsedToolCall:
    *fields, _agent = row
    return ParsedToolCall(*fields)


def stable_id(*parts: object) -> int:
    """Return an id below 2**63 derived from the parts only: the same on every machine."""
    return hash_text("\x00".join(map(str, parts)))


def pruned_id(table: str, name: str) -> int:
    """Return the id under which `pruned` remembers a session or run."""
    return stable_id("pruned", table, name)


def part_id(whole: int, position: int) -> int:
    """Return the id of the part at a position of something with an id."""
    return (whole + position * PART_ID_STEP) & MAX_INT64


def hash_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()) >> 1
