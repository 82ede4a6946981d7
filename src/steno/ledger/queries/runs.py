"""Runs: lists of them, one of them by an id prefix, their reports, and notes."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...analysis.usage import nano_to_usd
from ...codec.redact import redact
from ...errors import StenoError
from ...report import Report
from ..protocol import Store, chunks, placeholders, query_column, query_value
from ..results import Note, RunSummary
from .filters import FAILED_RUN_SQL, Filters, WhereClause

RUN_SELECT_COLUMNS = ", ".join(RunSummary.__struct_fields__[:-1])  # without `short_id`
RUN_RANKINGS = {
    "cost": "cost_nano",
    "tokens": "input + cache_write + cache_read + output",
    "time": "duration_ms",
    "turns": "turns",
    "context": "context_peak",
}
TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output", "reasoning")
SHORT_ID_LENGTH = 8  # shown, unless more characters are needed to be unique
MIN_PREFIX_LENGTH = 4
MAX_MATCHES_SHOWN = 5  # in the message about an ambiguous prefix


class LedgerId(NamedTuple):
    table: str  # runs, sessions or tasks
    id: str


class UnknownEvents(NamedTuple):
    """The number of events of unknown kinds in a run."""

    agent: str | None
    agent_version: str | None
    events: int
    run: str


# -- lists ---------------------------------------------------------------------------------------


def runs_where(
    filters: Filters, verdicts: list[str], failed: bool, session: str | None
) -> WhereClause:
    where = WhereClause().add_time_range("started_at", filters.time_range).add_names(filters)
    if failed:
        where.add(FAILED_RUN_SQL)
    if verdicts:
        finished = [verdict for verdict in verdicts if verdict != "running"]
        running = " OR verdict IS NULL" if "running" in verdicts else ""
        where.add(f"(verdict IN ({placeholders(len(finished)) or 'NULL'}){running})", *finished)
    if session is not None:
        where.add("session = ?", session)
    return where


def list_runs(
    store: Store, where: WhereClause, limit: int | None = None, top: str | None = None
) -> list[RunSummary]:
    """Return runs, newest first or ranked by `top`; those without the figure come last."""
    ranking = f"coalesce({RUN_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    limit_sql = f" LIMIT {limit}" if limit is not None else ""
    sql = (
        f"SELECT {RUN_SELECT_COLUMNS} FROM runs{where.sql} "
        f"ORDER BY {ranking}coalesce(started_at, 0) DESC, id{limit_sql}"
    )
    runs = [RunSummary(*row) for row in store.query(sql, where.values)]
    prefixes = short_ids(store, "runs", [run.id for run in runs])
    for run in runs:
        run.short_id = prefixes[run.id]
    return runs


def sum_runs(store: Store, where: WhereClause) -> dict[str, Any]:
    """Return the totals of all matching runs as JSON values."""
    columns = (*TOKEN_COLUMNS, "cost_nano", "turns", "duration_ms")
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in columns)
    sql = f"SELECT count(*), count(cost_nano), {sums} FROM runs{where.sql}"
    ((count, priced, *figures),) = store.query(sql, where.values)
    totals = {name: int(figure) for name, figure in zip(columns, figures, strict=True)}
    tokens = {name: totals[name] for name in TOKEN_COLUMNS}
    total_tokens = sum(tokens.values()) - tokens["reasoning"]  # reasoning is part of the output
    return {
        "runs": int(count),
        "tokens": {**tokens, "total": total_tokens},
        "cost": {
            "usd": nano_to_usd(totals["cost_nano"]) if priced or not count else None,
            "unpriced_runs": int(count - priced),
        },
        "turns": totals["turns"],
        "duration_ms": totals["duration_ms"],
    }


def recent_unknown_events(store: Store, limit: int) -> list[UnknownEvents]:
    """Return the counts of the last runs, newest first."""
    sql = "SELECT agent, agent_version, unknown, id FROM runs ORDER BY started_at DESC LIMIT ?"
    return [UnknownEvents(*row) for row in store.query(sql, (limit,))]


# -- ids -----------------------------------------------------------------------------------------


def short_ids(store: Store, table: str, ids: list[str]) -> dict[str, str]:
    """Return for each id its shortest prefix that is unique in a table."""
    heads = sorted({id_[:SHORT_ID_LENGTH] for id_ in ids})
    others: list[str] = []
    for part in chunks(heads):
        where = WhereClause().add_in(f"substr(id, 1, {SHORT_ID_LENGTH})", part)
        others += query_column(store, f"SELECT id FROM {table}{where.sql}", where.values)
    return unique_prefixes(ids, others)


def unique_prefixes(ids: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Return for each id its prefix of at least SHORT_ID_LENGTH that no other id has."""
    by_head: dict[str, list[str]] = {}
    for other in others:
        by_head.setdefault(other[:SHORT_ID_LENGTH], []).append(other)
    prefixes = {}
    for id_ in ids:
        rivals = by_head.get(id_[:SHORT_ID_LENGTH], [])
        length = SHORT_ID_LENGTH
        while length < len(id_) and sum(other.startswith(id_[:length]) for other in rivals) > 1:
            length += 1
        prefixes[id_] = id_[:length]
    return prefixes


def ambiguous_prefix_error(prefix: str, kind: str, matches: Sequence[str]) -> StenoError:
    """Return the error for a prefix of several ids; `kind` is plural, such as `runs`."""
    more = " ..." if len(matches) > MAX_MATCHES_SHOWN else ""
    shown = ", ".join(matches[:MAX_MATCHES_SHOWN])
    return StenoError(f"{prefix}: ambiguous, matches several {kind}: {shown}{more}")


def find_by_prefix(store: Store, prefix: str) -> LedgerId | None:
    """Find a run, else a session, by id or id prefix. StenoError if it is ambiguous."""
    for table in ("runs", "sessions"):
        matches = _ids_with_prefix(store, table, prefix)
        if len(matches) > 1:
            raise ambiguous_prefix_error(prefix, table, matches)
        if matches:
            return LedgerId(table, matches[0])
    return None


def _ids_with_prefix(store: Store, table: str, prefix: str) -> list[str]:
    """Return the exact id, else all ids with the prefix (up to one more than is shown)."""
    exact = query_column(store, f"SELECT id FROM {table} WHERE id = ?", (prefix,))
    if exact or len(prefix) < MIN_PREFIX_LENGTH:
        return exact
    sql = (
        f"SELECT id FROM {table} WHERE substr(id, 1, {len(prefix)}) = ? "
        f"ORDER BY id LIMIT {MAX_MATCHES_SHOWN + 1}"
    )
    return query_column(store, sql, (prefix,))


def get_by_prefix(store: Store, prefix: str) -> LedgerId:
    """As `find_by_prefix`; StenoError if there is no match."""
    match = find_by_prefix(store, prefix)
    if match is None:
        hint = f" (use at least {MIN_PREFIX_LENGTH} characters of the ID)"
        raise StenoError(
            f"{prefix}: no run or session with this ID in the ledger"
            f"{hint if len(prefix) < MIN_PREFIX_LENGTH else ''}"
        )
    return match


def get_session_by_prefix(store: Store, prefix: str) -> str:
    """Return the id of a session, which may be known from its runs only."""
    ids = _ids_with_prefix(store, "sessions", prefix)
    if not ids:
        sql = (
            f"SELECT DISTINCT session FROM runs WHERE substr(session, 1, {len(prefix)}) = ? "
            "ORDER BY session"
        )
        ids = query_column(store, sql, (prefix,))
    if len(ids) > 1:
        raise ambiguous_prefix_error(f"--session {prefix}", "sessions", ids)
    if not ids:
        raise StenoError(f"--session {prefix}: no session with this ID in the ledger")
    return ids[0]


# -- one run -------------------------------------------------------------------------------------


def find_run(store: Store, id_: str) -> RunSummary | None:
    runs = list_runs(store, WhereClause().add("id = ?", id_), 1)
    return runs[0] if runs else None


def get_run(store: Store, id_: str) -> RunSummary:
    """Return the run with an id that is known to exist."""
    run = find_run(store, id_)
    if run is None:
        raise StenoError(f"{id_}: no run with this ID in the ledger")
    return run


def load_report(store: Store, run: str) -> Report | None:
    """Return the stored report of a run; None if there is none that this version can read."""
    data = query_value(store, "SELECT report FROM runs WHERE id = ?", (run,))
    if data is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(data), type=Report)
    except (zlib.error, msgspec.MsgspecError):
        return None


# -- notes ---------------------------------------------------------------------------------------


def list_notes(store: Store, table: str, id_: str) -> list[Note]:
    """Return the notes on a run or session, oldest first."""
    column = "run" if table == "runs" else "session"
    sql = f"SELECT at, text FROM notes WHERE {column} = ? ORDER BY at, id"
    return [Note(*row) for row in store.query(sql, (id_,))]


def add_note(store: Store, table: str, id_: str, at: int, text: str) -> None:
    """Add a note to a run or session, without secrets. StenoError if it is empty."""
    text = redact(text).strip()
    if not text:
        raise StenoError("the note is empty")
    column = "run" if table == "runs" else "session"
    with store.transaction():
        store.execute(f"INSERT INTO notes ({column}, at, text) VALUES (?, ?, ?)", (id_, at, text))
