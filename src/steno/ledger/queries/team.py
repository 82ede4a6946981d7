"""Agents side by side: messages, claims on files, permission requests, presence of runs.

Writers take turns (`Store.transaction`), so what one of them reads in its transaction stays true
until it has written.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct

from ...errors import StenoError
from ...units import DAY_MS, HOUR_MS
from ..protocol import Store, chunks, placeholders, query_column, query_value

RETENTION_MS = 7 * DAY_MS  # of messages, decided requests and presence
MAX_ACTIVE_RUNS = 500
MAX_MESSAGES_PER_HOUR = 200  # of one sender: an agent in a loop


def _columns(row_type: type[Struct]) -> str:
    return ", ".join(row_type.__struct_fields__)


def _insert(store: Store, table: str, **values: Any) -> None:
    names = ", ".join(values)
    store.execute(
        f"INSERT INTO {table} ({names}) VALUES ({placeholders(len(values))})",
        tuple(values.values()),
    )


# -- messages --------------------------------------------------------------------------------------


class Message(Struct, frozen=True):
    id: int
    sender: str
    run: str | None
    recipient: str
    at: int
    text: str


def add_message(
    store: Store, *, sender: str, run: str | None, recipient: str, at: int, text: str
) -> int:
    """Add a message, delete the oldest ones, and return its id. StenoError for a flood."""
    old = f"SELECT id FROM messages WHERE at < {at - RETENTION_MS}"
    recent = "SELECT count(*) FROM messages WHERE sender = ? AND at >= ?"
    with store.transaction():
        if query_value(store, recent, (sender, at - HOUR_MS)) >= MAX_MESSAGES_PER_HOUR:
            raise StenoError(f"too many messages: {MAX_MESSAGES_PER_HOUR} within an hour")
        store.execute(f"DELETE FROM message_reads WHERE message IN ({old})")
        store.execute(f"DELETE FROM messages WHERE id IN ({old})")
        _insert(store, "messages", sender=sender, run=run, recipient=recipient, at=at, text=text)
        return int(query_value(store, "SELECT max(id) FROM messages"))


def list_messages(
    store: Store,
    reader: str,
    addresses: Collection[str],
    *,
    since: int,
    limit: int,
    unread_only: bool = True,
) -> list[Message]:
    """The messages to these addresses, and those to all since a time, oldest first."""
    unread = (
        "AND NOT EXISTS (SELECT 1 FROM message_reads r WHERE r.message = m.id AND r.reader = ?)"
    )
    sql = (
        f"SELECT {_columns(Message)} FROM messages m WHERE sender <> ? "
        f"AND (recipient IN ({placeholders(len(addresses))}) OR (recipient = '' AND at >= ?)) "
        f"{unread if unread_only else ''} ORDER BY id LIMIT {limit}"
    )
    values = (reader, *addresses, since, *([reader] if unread_only else []))
    return [Message(*row) for row in store.query(sql, values)]


def mark_read(store: Store, reader: str, ids: Iterable[int], now: int) -> None:
    rows = [(id_, reader, now) for id_ in ids]
    if rows:
        with store.transaction():
            store.upsert(
                "message_reads", ("message", "reader", "at"), rows, "ON CONFLICT DO NOTHING"
            )


# -- claims ----------------------------------------------------------------------------------------


class Claim(Struct, frozen=True):
    """A claim on a path. The one with the lowest id of those that overlap holds it."""

    id: int
    repository: str
    path: str
    owner: str
    run: str | None
    registry: str
    asked_at: int
    ttl_ms: int
    held_since: int | None
    expires_at: int


def list_claims(store: Store, repository: str | None = None) -> list[Claim]:
    """The claims of a repository, or all, in the order in which they were asked for."""
    where = "" if repository is None else " WHERE repository = ?"
    values = () if repository is None else (repository,)
    sql = f"SELECT {_columns(Claim)} FROM claims{where} ORDER BY id"
    return [Claim(*row) for row in store.query(sql, values)]


def insert_claim(store: Store, **values: Any) -> None:
    _insert(store, "claims", **values)


def hold_claims(store: Store, claims: Iterable[Claim], now: int) -> None:
    """These claims are first in line: their time to live begins."""
    for claim in claims:
        store.execute(
            "UPDATE claims SET held_since = ?, expires_at = ? WHERE id = ?",
            (now, now + claim.ttl_ms, claim.id),
        )


def renew_claim(store: Store, id_: int, ttl_ms: int, expires_at: int) -> None:
    store.execute(
        "UPDATE claims SET ttl_ms = ?, expires_at = ? WHERE id = ?", (ttl_ms, expires_at, id_)
    )


def delete_claims(store: Store, ids: Sequence[int]) -> int:
    return sum(
        store.execute(f"DELETE FROM claims WHERE id IN ({placeholders(len(part))})", part)
        for part in chunks(ids)
    )


def ended_tasks(store: Store, tasks: Collection[str]) -> set[str]:
    """Of these tasks, those that have a verdict."""
    found: set[str] = set()
    for part in chunks(list(tasks)):
        ids = placeholders(len(part))
        sql = f"SELECT id FROM tasks WHERE verdict IS NOT NULL AND id IN ({ids})"
        found.update(query_column(store, sql, part))
    return found


# -- permission requests ---------------------------------------------------------------------------


class PermissionRequest(Struct, frozen=True):
    """A tool call that a person is asked to permit; `input` is truncated JSON without secrets."""

    id: str
    run: str | None
    task: str | None
    session: str | None
    name: str | None
    registry: str
    tool: str
    input: str
    chars: int
    asked_at: int
    expires_at: int
    decision: str | None = None
    reason: str | None = None
    decided_at: int | None = None
    decided_by: str | None = None


def insert_permission_request(store: Store, request: PermissionRequest) -> None:
    """Store a request, and delete those that are long decided or expired."""
    with store.transaction():
        store.execute(
            "DELETE FROM permission_requests WHERE expires_at < ?",
            (request.asked_at - RETENTION_MS,),
        )
        values = {name: getattr(request, name) for name in request.__struct_fields__}
        _insert(store, "permission_requests", **values)


def list_permission_requests(store: Store, open_at: int | None = None) -> list[PermissionRequest]:
    """All requests, or those that can be decided at a time; oldest first."""
    where = "" if open_at is None else "WHERE decision IS NULL AND expires_at > ?"
    sql = (
        f"SELECT {_columns(PermissionRequest)} FROM permission_requests {where} "
        "ORDER BY asked_at, id"
    )
    values = () if open_at is None else (open_at,)
    return [PermissionRequest(*row) for row in store.query(sql, values)]


def find_permission_request(store: Store, id_: str) -> PermissionRequest | None:
    sql = f"SELECT {_columns(PermissionRequest)} FROM permission_requests WHERE id = ?"
    return next((PermissionRequest(*row) for row in store.query(sql, (id_,))), None)


def decide_permission(
    store: Store, id_: str, decision: str, *, reason: str | None, now: int, by: str
) -> bool:
    """Store the first decision on a request; False if there is one already."""
    with store.transaction():
        changed = store.execute(
            "UPDATE permission_requests SET decision = ?, reason = ?, decided_at = ?, "
            "decided_by = ? WHERE id = ? AND decision IS NULL",
            (decision, reason, now, by, id_),
        )
    return changed > 0


# -- runs ------------------------------------------------------------------------------------------


class Presence(Struct, frozen=True):
    """What a run last said of itself."""

    run: str
    state: str
    tool: str | None
    silence_ms: int | None
    context_used: int | None
    context_limit: int | None
    seen_at: int


def put_presence(store: Store, presence: Presence) -> None:
    names = Presence.__struct_fields__
    updates = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    row = tuple(getattr(presence, name) for name in names)
    with store.transaction():
        store.execute("DELETE FROM presence WHERE seen_at < ?", (presence.seen_at - RETENTION_MS,))
        store.upsert("presence", names, [row], f"ON CONFLICT (run) DO UPDATE SET {updates}")


def list_presence(store: Store, since: int) -> dict[str, Presence]:
    """What runs said since a time, by run."""
    sql = f"SELECT {_columns(Presence)} FROM presence WHERE seen_at >= ?"
    return {row[0]: Presence(*row) for row in store.query(sql, (since,))}


class ActiveRun(Struct, frozen=True):
    """A run without a verdict, on any machine."""

    id: str
    task: str | None
    session: str | None
    agent: str | None
    name: str | None
    host: str | None
    user_name: str | None
    project: str | None
    started_at: int | None


def list_active_runs(store: Store, since: int) -> list[ActiveRun]:
    """The runs without a verdict that started since a time, oldest first."""
    sql = (
        f"SELECT {_columns(ActiveRun)} FROM runs WHERE verdict IS NULL AND started_at >= ? "
        f"ORDER BY started_at, id LIMIT {MAX_ACTIVE_RUNS}"
    )
    return [ActiveRun(*row) for row in store.query(sql, (since,))]
