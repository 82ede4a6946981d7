"""Recognise what both a run and the transcript of its session contain.

Where both have the same messages, as of Claude Code, equal rows have equal ids from the start.
Of other agents, calls are known by their own id in the session, or only by their order; texts by
their wording. All of them only while the run was active: see `Transcripts.call_identity`.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ..agents import AGENTS
from .protocol import Row, Store, chunks, placeholders
from .rows import (
    CALL_COLUMNS,
    DENIAL_COLUMNS,
    TEXT_COLUMNS,
    DenialRow,
    FileChangeRow,
    ParsedToolCall,
    RowBatch,
    TextRow,
    call_from_row,
    part_id,
    stable_id,
)
from .totals import ToolUseDeltas, add_call, upsert_tool_use

MAX_CLOCK_SKEW_MS = 1000  # of an agent's times before steno's


class RunInterval(NamedTuple):
    """When a run was active."""

    run: str
    started_at: int
    ended_at: int


T = TypeVar("T", ParsedToolCall, DenialRow, TextRow)
R = TypeVar("R", ParsedToolCall, FileChangeRow, DenialRow, TextRow)
CallKey = tuple[str, str | None, str | None]  # session, run and call
Intervals = dict[str, list[RunInterval]]  # by session


def call_identity(agent: str) -> str:
    return AGENTS[agent].transcripts.call_identity if agent in AGENTS else "message"


# -- by id ---------------------------------------------------------------------------------------


def with_session_ids(batch: RowBatch) -> RowBatch:
    """Derive the ids of rows from their session and call, or from their run.

    Only now: some streams name their session in the last line.
    """
    identity = call_identity(batch.agent)
    if identity == "order":
        return _with_run_ids(batch)
    if identity == "message":
        return batch
    scope = f"{batch.agent}{batch.id_namespace}"
    calls = [
        replace(row, id=stable_id("call", scope, row.session, row.call)) for row in batch.calls
    ]
    ids = {(row.session, row.call): row.id for row in calls}
    denials = {
        stable_id("denial", scope, row.session, row.call or row.tool): row for row in batch.denials
    }
    texts = [replace(row, id=stable_id("text", scope, row.session, row.id)) for row in batch.texts]
    return replace(
        batch,
        calls=calls,
        changes=_changes_of_calls(batch.changes, ids),
        denials=[replace(row, id=id_) for id_, row in denials.items()],
        texts=texts,
    )


def _with_run_ids(batch: RowBatch) -> RowBatch:
    """Distinguish the rows of several runs of a session: each run numbers its own lines."""

    def renamed(rows: Iterable[R]) -> list[R]:
        return [
            row if row.run is None else replace(row, id=stable_id(row.run, row.id)) for row in rows
        ]

    return replace(
        batch,
        calls=renamed(batch.calls),
        changes=renamed(batch.changes),
        denials=renamed(batch.denials),
        texts=renamed(batch.texts),
    )


def _changes_of_calls(
    rows: Iterable[FileChangeRow], calls: dict[tuple[str, str], int]
) -> list[FileChangeRow]:
    """Number the changes of each call: their paths may be relative or not."""
    numbers: Counter[int] = Counter()
    changes = []
    for row in rows:
        call = calls.get((row.session, row.call or ""))
        if row.source == "tool" and call is not None:
            numbers[call] += 1
            row = replace(row, id=part_id(call, -numbers[call]))
        changes.append(row)
    return changes


# -- by order and wording ------------------------------------------------------------------------


def without_copies(store: Store, batch: RowBatch, projects: dict[str, str]) -> RowBatch:
    """Return a batch without what the ledger has from the other one of a run and its transcript.

    Of calls and denials, those of the run remain: a transcript's are deleted.
    """
    identity = call_identity(batch.agent)
    if identity == "message":
        return batch
    lists: tuple[list[Any], ...] = (batch.calls, batch.denials, batch.texts)
    sessions = {row.session for rows in lists for row in rows}
    intervals = load_run_intervals(store, sessions)
    if not intervals:
        return batch
    stored_texts = [TextRow(*row) for row in _load(store, "texts", TEXT_COLUMNS, intervals)]
    new_copies, _ = _pair(batch.texts, stored_texts, _text_key, intervals)
    batch = replace(batch, texts=_without(batch.texts, new_copies))
    return batch if identity == "id" else _without_copied_calls(store, batch, projects, intervals)


def _without_copied_calls(
    store: Store, batch: RowBatch, projects: dict[str, str], intervals: Intervals
) -> RowBatch:
    stored_calls = [call_from_row(row) for row in _load(store, "calls", CALL_COLUMNS, intervals)]
    stored_denials = [DenialRow(*row) for row in _load(store, "denials", DENIAL_COLUMNS, intervals)]
    edits = {(row.session, row.run, row.call) for row in batch.changes if row.source == "tool"}
    edits.update(_load_edits(store, intervals))

    def kind(row: ParsedToolCall) -> str:  # a patch may be a command of the shell
        return "edit" if (row.session, row.run, row.call) in edits else row.kind

    new_calls, old_calls = _pair(batch.calls, stored_calls, kind, intervals)
    new_denials, old_denials = _pair(batch.denials, stored_denials, _any, intervals)
    runs = {*(row.run for row in batch.calls), *(row.run for row in batch.denials)}
    if runs - {None}:
        delete_calls(store, batch.agent, old_calls, projects)
        _delete(store, "denials", (row.id for row in old_denials))
        return batch
    copied = {(row.session, row.call) for row in new_calls}
    return replace(
        batch,
        calls=_without(batch.calls, new_calls),
        denials=_without(batch.denials, new_denials),
        changes=[
            row
            for row in batch.changes
            if row.source != "tool" or (row.session, row.call) not in copied
        ],
    )


def _text_key(row: TextRow) -> Hashable:
    return (row.parent, row.role, row.text)


def _any(_: DenialRow) -> Hashable:
    return None


def _pair(
    new: Sequence[T], stored: Sequence[T], key: Callable[[T], Hashable], intervals: Intervals
) -> tuple[list[T], list[T]]:
    """Return the new rows that are copies of stored ones, and these.

    The first of a run is a copy of the first of its transcript, and so on.
    """
    known = {row.id for row in stored}
    known_copies = {row.id for row in new if row.id in known}
    waiting: dict[Hashable, deque[T]] = {}
    for row in stored:
        if row.id in known_copies:
            continue
        place = (row.run is None, _run_of(row, intervals), key(row))
        waiting.setdefault(place, deque()).append(row)
    copies: tuple[list[T], list[T]] = ([], [])
    for row in new:
        run = _run_of(row, intervals)
        others = waiting.get((row.run is not None, run, key(row)))
        if others and run is not None and row.id not in known_copies:
            copies[0].append(row)
            copies[1].append(others.popleft())
    return copies


def _run_of(row: ParsedToolCall | DenialRow | TextRow, intervals: Intervals) -> str | None:
    """The run of a row; of a transcript's, the run that was active at its time."""
    if row.run is not None:
        return row.run
    found = find_run_at(intervals.get(row.session, ()), row.at, MAX_CLOCK_SKEW_MS)
    return found.run if found is not None else None


def _without(rows: Sequence[T], copies: Iterable[T]) -> list[T]:
    ids = {row.id for row in copies}
    return [row for row in rows if row.id not in ids]


# -- the ledger ----------------------------------------------------------------------------------


def load_run_intervals(store: Store, sessions: Iterable[str]) -> dict[str, list[RunInterval]]:
    """Return the finished runs of some sessions, by session."""
    intervals: dict[str, list[RunInterval]] = {}
    for part in chunks(list(sessions)):
        sql = (
            "SELECT session, id, started_at, ended_at FROM runs "
            f"WHERE session IN ({placeholders(len(part))}) "
            "AND started_at IS NOT NULL AND ended_at IS NOT NULL"
        )
        for session, *fields in store.query(sql, part):
            interval = RunInterval(*fields)
            intervals.setdefault(session, []).append(interval)
    return intervals


def find_run_at(intervals: Iterable[RunInterval], at: int, slack_ms: int) -> RunInterval | None:
    """Return the run that was active at a time, else the nearest one within the slack."""
    distances = [
        (max(interval.started_at - at, at - interval.ended_at, 0), interval)
        for interval in intervals
    ]
    if not distances:
        return None
    distance, nearest = min(distances)
    return nearest if distance <= slack_ms else None


def _load_edits(store: Store, sessions: Iterable[str]) -> set[CallKey]:
    """The calls that changed files."""
    rows = _load(store, "changes", ("session", "run", "call", "source"), sessions)
    return {(session, run, call) for session, run, call, source in rows if source == "tool"}


def _load(store: Store, table: str, columns: Sequence[str], sessions: Iterable[str]) -> list[Row]:
    rows: list[Row] = []
    for part in chunks(list(sessions)):
        sql = (
            f"SELECT {', '.join(columns)} FROM {table} "
            f"WHERE session IN ({placeholders(len(part))}) ORDER BY seq"
        )
        rows += store.query(sql, part)
    return rows


def delete_calls(
    store: Store, agent: str, calls: Sequence[ParsedToolCall], projects: dict[str, str]
) -> None:
    """Delete calls with their changes, and subtract them from the sums."""
    deltas: ToolUseDeltas = {}
    for call in calls:
        add_call(deltas, agent, call, projects, -1)
        store.execute(
            "DELETE FROM changes "
            "WHERE session = ? AND call = ? AND run IS NULL AND source = 'tool'",
            (call.session, call.call),
        )
    upsert_tool_use(store, deltas)
    _delete(store, "calls", (call.id for call in calls))


def _delete(store: Store, table: str, ids: Iterable[Any]) -> None:
    for part in chunks(list(ids)):
        store.execute(f"DELETE FROM {table} WHERE id IN ({placeholders(len(part))})", part)
