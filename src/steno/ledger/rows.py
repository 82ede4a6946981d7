"""The rows that a reading of a file gives, before they are merged with the ledger's, and the numbers that name them. Pure."""

from hashlib import blake2b
from typing import Any

from msgspec import Struct

MAX_INT64 = (1 << 63) - 1
MAX_TIME_MS = 253_370_764_800_000  # the year 9999: a time from there on, or before 1970, is damage, and no calendar may have it
PART_ID_STEP = (
    0x61C8_8646_80B5_83EB  # odd and far from any pattern: parts of different things do not meet
)
UNKNOWN_CONTEXT = -1  # what the window holds after a compaction that does not say: told as NULL, and not what it held before


class ParsedRequest(Struct, array_like=True, gc=False):
    """One request to a model, as far as this file tells it."""

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
    """One tool call, with its answer once there was one."""

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


class ParsedSession(Struct, gc=False):
    """What a file says of a session besides its requests."""

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
    """Rows that belong together: what one reading of one file or run found."""

    agent: str
    sessions: dict[str, ParsedSession]
    requests: list[ParsedRequest]
    calls: list[tuple[Any, ...]]  # in the order of sums.CALL
    changes: list[tuple[Any, ...]]  # id, session, run, call, path, inside, change, source, at
    denials: list[tuple[Any, ...]]  # id, session, run, call, tool, reason, rule, at
    texts: list[tuple[Any, ...]]  # id, session, run, parent, role, at, text
    is_from_start: bool = True  # read from the beginning, not from where an earlier reading ended


def is_valid_time(at: int) -> bool:
    """Whether milliseconds since 1970 can be the time of something that an agent did."""
    return 0 <= at < MAX_TIME_MS


def stable_id(*parts: object) -> int:
    """A number that stands for what it is made of: the same wherever and whenever it is made. Below 2**63."""
    return hash_text("\x00".join(map(str, parts)))


def pruned_id(table: str, name: str) -> int:
    """The number under which a session or a run that was pruned is remembered."""
    return stable_id("pruned", table, name)


def part_id(whole: int, place: int) -> int:
    """The number of the part of something that stands at a place in it."""
    return (whole + place * PART_ID_STEP) & MAX_INT64


def hash_text(text: str) -> int:
    """The number of a text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()) >> 1
