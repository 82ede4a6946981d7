"""Stored reports with their tool calls, for `steno check`."""

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...report import Report
from ..protocol import Store, chunks, placeholders, query_column
from .filters import WhereClause

RUNS_PER_QUERY = 200


class StoredCall(NamedTuple):
    """A call; `target` is its command or path, of which the ledger keeps the beginning."""

    call: str
    name: str
    kind: str
    target: str | None
    ok: bool | None
    denied: bool


class StoredFacts(NamedTuple):
    report: Report
    calls: list[StoredCall]


def list_run_ids(store: Store, where: WhereClause, limit: int | None = None) -> list[str]:
    """Return the ids of finished runs, newest first."""
    limit_sql = f" LIMIT {limit}" if limit is not None else ""
    where.add("verdict IS NOT NULL")
    sql = f"SELECT id FROM runs{where.sql} ORDER BY started_at DESC NULLS LAST, id{limit_sql}"
    return query_column(store, sql, where.values)


def iter_facts(store: Store, ids: list[str], with_calls: bool) -> Iterator[StoredFacts]:
    """Yield the stored runs in the given order; those without a readable report are left out."""
    decoder = msgspec.json.Decoder(Report)
    for part in chunks(ids, RUNS_PER_QUERY):
        marks = placeholders(len(part))
        sql = f"SELECT id, report FROM runs WHERE id IN ({marks})"
        blobs: dict[str, bytes | None] = dict(store.query(sql, part))
        calls = _calls_by_run(store, part) if with_calls else {}
        for id_ in part:
            try:
                report = decoder.decode(zlib.decompress(blobs.get(id_) or b""))
            except (zlib.error, msgspec.MsgspecError):
                continue
            yield StoredFacts(report, calls.get(id_, []))


def _calls_by_run(store: Store, ids: Sequence[str]) -> dict[str, list[StoredCall]]:
    sql = (
        "SELECT run, call, name, kind, target, ok, denied FROM calls "
        f"WHERE run IN ({placeholders(len(ids))}) ORDER BY run, at, seq"
    )
    calls: dict[str, list[StoredCall]] = {}
    for run, call, name, kind, target, ok, denied in store.query(sql, ids):
        stored = StoredCall(
            call, name, kind, target, None if ok is None else bool(ok), bool(denied)
        )
        calls.setdefault(run, []).append(stored)
    return calls
