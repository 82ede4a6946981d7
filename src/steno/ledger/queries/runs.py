"""Runs: lists of them, one of them by the beginning of its id, the notes beside them. It never changes a run."""

from typing import Any

from ...codec.redact import redact
from ...errors import StenoError
from ..results import Note, RunSummary
from ..store import Store
from .filters import MAX_VALUES_PER_QUERY, Filters, WhereClause

RUN_SELECT_COLUMNS = ", ".join(RunSummary.__struct_fields__[:-1])
# What runs can be ranked by.
RUN_RANKINGS = {
    "cost": "cost_nano",
    "tokens": "input + cache_write + cache_read + output",
    "time": "duration_ms",
    "turns": "turns",
    "context": "context_peak",
}
SHORT_ID_LENGTH = 8  # letters of an id that are shown, unless more are needed to name it
MIN_PREFIX_LENGTH = 4  # letters that a prefix must have
MAX_MATCHES_SHOWN = 5  # of an ambiguous prefix that are told


def runs_where(
    filters: Filters, verdicts: list[str], failed: bool, session: str | None
) -> WhereClause:
    """Which runs are meant."""
    where = (
        WhereClause()
        .add_time_range("started_at", filters.time_range)
        .add_in("project", filters.projects)
    )
    where.add_in("model", filters.models).add_in("agent", filters.agents)
    if failed:
        where.add("verdict <> 'success'")
    words = [word for word in verdicts if word != "running"]
    if verdicts:
        running = " OR verdict IS NULL" if "running" in verdicts else ""
        marks = ",".join("?" * len(words)) or "NULL"
        where.add(f"(verdict IN ({marks}){running})", *words)
    if session is not None:
        where.add("session = ?", session)
    return where


def list_runs(
    store: Store, where: WhereClause, most: int | None = None, top: str | None = None
) -> list[RunSummary]:
    """The runs, the newest first, or those with the most of something first; what is not known comes last."""
    limit = f" LIMIT {most}" if most is not None else ""
    first = f"coalesce({RUN_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    sql = f"SELECT {RUN_SELECT_COLUMNS} FROM runs{where.sql} ORDER BY {first}coalesce(started_at, 0) DESC, id{limit}"
    found = [RunSummary(*row) for row in store.query(sql, where.values)]
    shorts = short_ids(store, "runs", [run.id for run in found])
    for run in found:
        run.short_id = shorts[run.id]
    return found


def sum_runs(store: Store, where: WhereClause) -> dict[str, Any]:
    """What all of them come to, whether they are shown or not."""
    counters = ("input", "cache_write", "cache_read", "output", "reasoning")
    sums = ", ".join(
        f"coalesce(sum({name}), 0)" for name in (*counters, "cost_nano", "turns", "duration_ms")
    )
    sql = f"SELECT count(*), count(cost_nano), {sums} FROM runs{where.sql}"
    many, priced, *figures = (int(figure) for figure in store.query(sql, where.values)[0])
    tokens = dict(zip(counters, figures, strict=False))
    usd = figures[5] / 1e9 if priced or not many else None
    return {
        "runs": many,
        "tokens": {**tokens, "total": sum(figures[:4])},
        "cost": {"usd": usd, "unpriced_runs": many - priced},
        "turns": figures[6],
        "duration_ms": figures[7],
    }


def short_ids(store: Store, table: str, ids: list[str]) -> dict[str, str]:
    """For each id, its beginning: long enough to name no other one."""
    others: dict[str, list[str]] = {}
    heads = sorted({id_[:SHORT_ID_LENGTH] for id_ in ids})
    for start in range(0, len(heads), MAX_VALUES_PER_QUERY):
        where = WhereClause().add_in(
            f"substr(id, 1, {SHORT_ID_LENGTH})", heads[start : start + MAX_VALUES_PER_QUERY]
        )
        for (other,) in store.query(f"SELECT id FROM {table}{where.sql}", where.values):
            others.setdefault(other[:SHORT_ID_LENGTH], []).append(other)
    return {id_: _unique_prefix(id_, others.get(id_[:SHORT_ID_LENGTH], [])) for id_ in ids}


def _unique_prefix(id_: str, others: list[str]) -> str:
    if len(others) < 2:
        return id_[:SHORT_ID_LENGTH]
    length = SHORT_ID_LENGTH
    while length < len(id_) and sum(other.startswith(id_[:length]) for other in others) > 1:
        length += 1
    return id_[:length]


# -- one of them -------------------------------------------------------------------------------------------------


def find_by_prefix(store: Store, prefix: str) -> tuple[str, str] | None:
    """The run or session that is meant, as ("runs" or "sessions", id). StenoError if it could be several."""
    for table in ("runs", "sessions"):
        found = _ids_with_prefix(store, table, prefix)
        if len(found) == 1 or prefix in found:
            return table, prefix if prefix in found else found[0]
        if found:
            more = " ..." if len(found) > MAX_MATCHES_SHOWN else ""
            raise StenoError(
                f"{prefix}: several {table} begin like this: {', '.join(found[:MAX_MATCHES_SHOWN])}{more}"
            )
    return None


def _ids_with_prefix(store: Store, table: str, prefix: str) -> list[str]:
    if len(prefix) < MIN_PREFIX_LENGTH:
        return [row[0] for row in store.query(f"SELECT id FROM {table} WHERE id = ?", (prefix,))]
    sql = f"SELECT id FROM {table} WHERE substr(id, 1, {len(prefix)}) = ? ORDER BY id LIMIT {MAX_MATCHES_SHOWN + 1}"
    exact = f"SELECT id FROM {table} WHERE id = ?"
    return [row[0] for row in store.query(exact, (prefix,)) or store.query(sql, (prefix,))]


def get_by_prefix(store: Store, prefix: str) -> tuple[str, str]:
    """The same, and StenoError if there is none."""
    what = find_by_prefix(store, prefix)
    if what is None:
        least = (
            f"; at least {MIN_PREFIX_LENGTH} letters of its id are needed"
            if len(prefix) < MIN_PREFIX_LENGTH
            else ""
        )
        raise StenoError(f"{prefix}: no run and no session in the ledger begins like this{least}")
    return what


def get_session_by_prefix(store: Store, prefix: str) -> str:
    """The session that is meant."""
    ids = _ids_with_prefix(store, "sessions", prefix) or _run_sessions_with_prefix(store, prefix)
    if len(ids) != 1:
        raise StenoError(
            f"--session {prefix}: {'several sessions begin' if ids else 'no session begins'} like this"
        )
    return ids[0]


def _run_sessions_with_prefix(store: Store, prefix: str) -> list[str]:
    sql = f"SELECT DISTINCT session FROM runs WHERE substr(session, 1, {len(prefix)}) = ? ORDER BY session"
    return [row[0] for row in store.query(sql, (prefix,))]


def get_run(store: Store, id_: str) -> RunSummary:
    """The run of this id."""
    return list_runs(store, WhereClause().add("id = ?", id_), 1)[0]


# -- notes -------------------------------------------------------------------------------------------------------


def list_notes(store: Store, table: str, id_: str) -> list[Note]:
    """What was noted, the oldest first."""
    column = "run" if table == "runs" else "session"
    return [
        Note(*row)
        for row in store.query(
            f"SELECT at, text FROM notes WHERE {column} = ? ORDER BY at, id", (id_,)
        )
    ]


def add_note(store: Store, table: str, id_: str, at: int, text: str) -> None:
    """Write a note beside a run or a session, with its secrets masked. StenoError if it is empty."""
    text = redact(text).strip()
    if not text:
        raise StenoError("an empty note says nothing")
    column = "run" if table == "runs" else "session"
    with store.transaction():
        store.execute(f"INSERT INTO notes ({column}, at, text) VALUES (?, ?, ?)", (id_, at, text))
