"""Rows of the ledger's tables, and how events become rows."""

from datetime import datetime, timedelta, timezone
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Raw, Struct

from .. import event as ev
from ..analysis.attribution import ATTRIBUTION_WINDOW_MS
from ..codec.decode import DECODE_ERRORS, decoder
from ..codec.redact import redact, redact_and_truncate
from ..event import NO_JSON
from ..report import resolve_path
from .protocol import Row

MAX_SECONDS = 253_402_300_800  # the year 10000
# The year 9999, the last one that datetime supports; later times are damaged data.
MAX_TIME_MS = 253_370_764_800_000
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def time_ms(time: datetime | None) -> int | None:
    """None if unknown, or before 1970 or after 9999, which only damaged data contains."""
    if time is None:
        return None
    at = int(time.timestamp() * 1000)
    return at if 0 <= at < MAX_TIME_MS else None


def utc_datetime(at: int | None) -> datetime | None:
    """None if unknown or out of range: agents may report any time."""
    try:
        return None if at is None else UNIX_EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return None


def utc_iso(at: int | None) -> str | None:
    time = utc_datetime(at)
    if time is None:
        return None
    return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds")


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
    final: bool = False  # the output is complete; else it is a lower bound


class SessionTotal(Struct, array_like=True, gc=False):
    """A row of `session_totals`; `models` are the figures of each model as JSON."""

    id: int
    session: str
    at: int
    cost_nano: int | None
    models: str
    run: str | None = None
    requests: int | None = None


SESSION_TOTAL_COLUMNS = SessionTotal.__struct_fields__


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


class LimitRow(Struct, array_like=True, gc=False):
    """A row of `limits`."""

    agent: str
    account: str
    window_kind: str
    observed_at: int
    utilization: float | None
    resets_at: int | None
    status: str | None
    source: str


LIMIT_COLUMNS = LimitRow.__struct_fields__
MAX_LIMIT_NAME_CHARS = 60  # of a window's name, which comes from the agent
_WINDOW_NAMES = {"300 minutes": "five_hour", "10080 minutes": "seven_day"}


def limit_row(
    agent: str,
    at: int,
    *,
    kind: str | None,
    status: str | None,
    utilization: float | None,
    resets_at: int | None,
    source: str,
) -> LimitRow:
    """A row of `limits`; `resets_at` in seconds since 1970. A rejected request: all is used."""
    if utilization is None and status == "rejected":
        utilization = 1.0
    name = (kind or "unknown")[:MAX_LIMIT_NAME_CHARS]
    resets_ms = resets_at * 1000 if resets_at and 0 < resets_at < MAX_SECONDS else None
    window = _WINDOW_NAMES.get(name, name)
    return LimitRow(agent, "", window, at, utilization, resets_ms, status, source)


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
    context_source: str | None = None  # upper_bound; None: measured
    host: str | None = None
    user_name: str | None = None
    repository: str | None = None
    branch: str | None = None
    overhead: str | None = None  # a report's ContextOverhead as JSON
    context_limit_source: str | None = None  # reported; None: known by the model
    untimed: int = 0  # 1: its times are those of files


class RowBatch(Struct):
    """All rows found in one file or run."""

    agent: str
    sessions: dict[str, ParsedSession]
    requests: list[ParsedRequest]
    calls: list[ParsedToolCall]
    changes: list[FileChangeRow]
    denials: list[DenialRow]
    texts: list[TextRow]
    sent: list[TextRow] = []  # messages of `steno send`, without an id
    limits: list[LimitRow] = []
    totals: list[SessionTotal] = []
    id_namespace: str = ""  # of a replayed recording

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened in it."""
        found = (self.requests, self.calls, self.changes, self.texts, self.limits, self.totals)
        return not any(found)


class RequestRow(NamedTuple):
    """A row of `requests`: a request with its price. `kind` is request or rest (an adjustment).

    `requests` is 1, or for an adjustment the number of requests that only the agent's total covers.
    `shown` is the run whose own output shows the request, `run` the one that it belongs to.
    """

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
    requests: int = 1
    shown: str | None = None
    final: int = 1
    partial: int = 0


REQUEST_COLUMNS = RequestRow._fields
CALL_COLUMNS = (*ParsedToolCall.__struct_fields__, "agent")
SESSION_COLUMNS = ("id", "agent", *ParsedSession.__struct_fields__)
CHANGE_COLUMNS = FileChangeRow.__struct_fields__
DENIAL_COLUMNS = DenialRow.__struct_fields__
TEXT_COLUMNS = TextRow.__struct_fields__


def request_from_row(row: RequestRow) -> ParsedRequest:
    """The request as it was read: `run` is the run that shows it."""
    values = {name: getattr(row, name) for name in ParsedRequest.__struct_fields__}
    return ParsedRequest(**{**values, "run": row.shown, "final": bool(row.final)})


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


class ChangeContext(Struct, frozen=True):
    """Where a change belongs: its session and run, its time, and the path as resolved."""

    session: str
    run: str | None
    at: int
    path: str
    absolute_path: str
    is_inside: bool

    @property
    def owner(self) -> str:
        return self.run or self.session


class FileChangeRows(Struct):
    """The file changes of one file or run."""

    rows: dict[int, FileChangeRow] = {}
    # By absolute path: when a tool last reported a change, and the times of observed ones.
    _reported_at: dict[str, int] = {}
    _first_paths: dict[int, str] = {}  # by call
    _observed_at: dict[str, dict[int, int]] = {}

    def add(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        """Add a change. `call` is the event's own call, or the one running at the time."""
        if event.source == "tool":
            self._add_reported(event, context, call)
        else:
            self._add_observed(event, context, None if event.source == "git" else call)

    def _add_reported(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        path = context.absolute_path
        self._reported_at[path] = context.at
        self._remove_observed(path, call.at if call is not None else context.at)
        if call is None:
            moment = stable_id(context.owner, context.at)
            id_ = stable_id("change", moment, path, event.change)
        else:
            id_ = part_id(call.id, -1)
            if self._first_paths.setdefault(call.id, path) != path:
                id_ = stable_id("change", call.id, path)  # a call that changes several files
        row = _change_row(id_, event, context, event.call)
        known = self.rows.setdefault(id_, row)
        if row.inside and not known.inside:  # the transcript's line: it also says what was created
            self.rows[id_] = row

    def resolve_paths(self, folder: str | None) -> None:
        """Make paths relative to the folder if it became known after them."""
        for row in self.rows.values():
            if not row.inside and folder is not None:
                row.path, _, is_inside = resolve_path(row.path, folder)
                row.inside = int(is_inside)

    def _remove_observed(self, path: str, call_started_at: int) -> None:
        """Remove observations of a change that a tool reports now: one change, seen twice."""
        observed_at = self._observed_at.get(path, {})
        for id_, at in list(observed_at.items()):
            # Without a call: the agent's line may have been read a little later than the change.
            slack = 0 if self.rows[id_].call is not None else ATTRIBUTION_WINDOW_MS
            if at >= call_started_at - slack:
                del observed_at[id_]
                del self.rows[id_]

    def _add_observed(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        path = context.absolute_path
        if self._is_known(event, context):
            return
        call_name = call.call if call is not None else None
        id_ = stable_id("seen", context.owner, call_name, path)
        observed_at = self._observed_at.setdefault(path, {})
        known = self.rows.get(id_)
        was_created = any(self.rows[other].change == "created" for other in observed_at)
        if event.change == "deleted" and was_created:
            for other in observed_at:
                del self.rows[other]  # created and deleted again: no change
            observed_at.clear()
        elif known is None:
            self.rows[id_] = _change_row(id_, event, context, call_name)
            observed_at[id_] = context.at
        elif known.change == "deleted" and event.change == "created":
            known.change = "modified"
        elif known.change != "created":
            known.change = event.change

    def _is_known(self, event: ev.FileChanged, context: ChangeContext) -> bool:
        """Whether a tool has just reported this change; git adds only paths not seen before."""
        path = context.absolute_path
        reported_at = self._reported_at.get(path)
        if event.source == "git":
            return reported_at is not None or bool(self._observed_at.get(path))
        return reported_at is not None and context.at - reported_at <= ATTRIBUTION_WINDOW_MS


def _change_row(
    id_: int, event: ev.FileChanged, context: ChangeContext, call: str | None
) -> FileChangeRow:
    return FileChangeRow(
        id=id_,
        session=context.session,
        run=context.run,
        call=call,
        path=redact(context.path),
        inside=int(context.is_inside),
        change=event.change,
        source=event.source,
        at=context.at,
    )


def fill_ids(batch: RowBatch, run: str, session: str) -> None:
    """Set the run and a missing session in rows that were made before they were known."""
    for rows in (
        *(batch.requests, batch.calls, batch.changes),
        *(batch.denials, batch.texts, batch.sent),
    ):
        for row in rows:
            row.run = run
            row.session = row.session or session
    unnamed = batch.sessions.pop("", None)
    if unnamed is None:
        return
    named = batch.sessions.setdefault(session, unnamed)
    if named is unnamed:
        return
    named.prompts += unnamed.prompts
    named.compactions += unnamed.compactions
    for name in ParsedSession.__struct_fields__:
        if getattr(named, name) is None:
            setattr(named, name, getattr(unnamed, name))
