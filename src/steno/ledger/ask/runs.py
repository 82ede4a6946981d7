"""Runs: lists of them, one of them by the beginning of its id, the notes beside them. It never changes a run."""

from typing import Any

from ...answer.lists import Note, Run
from ...redact import redact
from ...report import StenoError
from ..store import Store
from .where import TOGETHER, Filters, Where

COLUMNS = ", ".join(Run.__struct_fields__[:-1])
# What runs can be ranked by.
TOP = {
    "cost": "cost_nano",
    "tokens": "input + cache_write + cache_read + output",
    "time": "duration_ms",
    "turns": "turns",
    "context": "context_peak",
}
SHORT = 8  # letters of an id that are shown, unless more are needed to name it
LEAST = 4  # letters that a prefix must have
MATCHES = 5  # of an ambiguous prefix that are told


def conditions(filters: Filters, verdicts: list[str], failed: bool, session: str | None) -> Where:
    """Which runs are meant."""
    where = Where().during("started_at", filters.span).among("project", filters.projects)
    where.among("model", filters.models).among("agent", filters.agents)
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


def runs(store: Store, where: Where, most: int | None = None, top: str | None = None) -> list[Run]:
    """The runs, the newest first, or those with the most of something first; what is not known comes last."""
    limit = f" LIMIT {most}" if most is not None else ""
    first = f"coalesce({TOP[top]}, -1) DESC, " if top is not None else ""
    sql = f"SELECT {COLUMNS} FROM runs{where.sql} ORDER BY {first}coalesce(started_at, 0) DESC, id{limit}"  # noqa: S608
    found = [Run(*row) for row in store.rows(sql, where.values)]
    shorts = shortened(store, "runs", [run.id for run in found])
    for run in found:
        run.short = shorts[run.id]
    return found


def total(store: Store, where: Where) -> dict[str, Any]:
    """What all of them come to, whether they are shown or not."""
    counters = ("input", "cache_write", "cache_read", "output", "reasoning")
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in (*counters, "cost_nano", "turns", "duration_ms"))
    sql = f"SELECT count(*), count(cost_nano), {sums} FROM runs{where.sql}"  # noqa: S608
    many, priced, *figures = (int(figure) for figure in store.rows(sql, where.values)[0])
    tokens = dict(zip(counters, figures, strict=False))
    usd = figures[5] / 1e9 if priced or not many else None
    return {
        "runs": many,
        "tokens": {**tokens, "total": sum(figures[:4])},
        "cost": {"usd": usd, "unpriced_runs": many - priced},
        "turns": figures[6],
        "duration_ms": figures[7],
    }


def shortened(store: Store, table: str, ids: list[str]) -> dict[str, str]:
    """For each id, its beginning: long enough to name no other one."""
    others: dict[str, list[str]] = {}
    heads = sorted({id_[:SHORT] for id_ in ids})
    for start in range(0, len(heads), TOGETHER):
        where = Where().among(f"substr(id, 1, {SHORT})", heads[start : start + TOGETHER])
        for (other,) in store.rows(f"SELECT id FROM {table}{where.sql}", where.values):  # noqa: S608
            others.setdefault(other[:SHORT], []).append(other)
    return {id_: _unique(id_, others.get(id_[:SHORT], [])) for id_ in ids}


def _unique(id_: str, others: list[str]) -> str:
    if len(others) < 2:
        return id_[:SHORT]
    length = SHORT
    while length < len(id_) and sum(other.startswith(id_[:length]) for other in others) > 1:
        length += 1
    return id_[:length]


# -- one of them -------------------------------------------------------------------------------------------------


def find(store: Store, prefix: str) -> tuple[str, str] | None:
    """The run or session that is meant, as ("runs" or "sessions", id). StenoError if it could be several."""
    for table in ("runs", "sessions"):
        found = _matches(store, table, prefix)
        if len(found) == 1 or prefix in found:
            return table, prefix if prefix in found else found[0]
        if found:
            more = " ..." if len(found) > MATCHES else ""
            raise StenoError(f"{prefix}: several {table} begin like this: {', '.join(found[:MATCHES])}{more}")
    return None


def _matches(store: Store, table: str, prefix: str) -> list[str]:
    if len(prefix) < LEAST:
        return [row[0] for row in store.rows(f"SELECT id FROM {table} WHERE id = ?", (prefix,))]  # noqa: S608
    sql = f"SELECT id FROM {table} WHERE substr(id, 1, {len(prefix)}) = ? ORDER BY id LIMIT {MATCHES + 1}"  # noqa: S608
    exact = f"SELECT id FROM {table} WHERE id = ?"  # noqa: S608
    return [row[0] for row in store.rows(exact, (prefix,)) or store.rows(sql, (prefix,))]


def found(store: Store, prefix: str) -> tuple[str, str]:
    """The same, and StenoError if there is none."""
    what = find(store, prefix)
    if what is None:
        least = f"; at least {LEAST} letters of its id are needed" if len(prefix) < LEAST else ""
        raise StenoError(f"{prefix}: no run and no session in the ledger begins like this{least}")
    return what


def session_named(store: Store, prefix: str) -> str:
    """The session that is meant."""
    ids = _matches(store, "sessions", prefix) or _matches_of_runs(store, prefix)
    if len(ids) != 1:
        raise StenoError(f"--session {prefix}: {'several sessions begin' if ids else 'no session begins'} like this")
    return ids[0]


def _matches_of_runs(store: Store, prefix: str) -> list[str]:
    sql = f"SELECT DISTINCT session FROM runs WHERE substr(session, 1, {len(prefix)}) = ? ORDER BY session"  # noqa: S608
    return [row[0] for row in store.rows(sql, (prefix,))]


def one(store: Store, id_: str) -> Run:
    """The run of this id."""
    return runs(store, Where().add("id = ?", id_), 1)[0]


# -- notes -------------------------------------------------------------------------------------------------------


def notes(store: Store, table: str, id_: str) -> list[Note]:
    """What was noted, the oldest first."""
    column = "run" if table == "runs" else "session"
    return [Note(*row) for row in store.rows(f"SELECT at, text FROM notes WHERE {column} = ? ORDER BY at, id", (id_,))]  # noqa: S608


def add_note(store: Store, table: str, id_: str, at: int, text: str) -> None:
    """Write a note beside a run or a session, with its secrets masked. StenoError if it is empty."""
    text = redact(text).strip()
    if not text:
        raise StenoError("an empty note says nothing")
    column = "run" if table == "runs" else "session"
    with store.writing():
        store.change(f"INSERT INTO notes ({column}, at, text) VALUES (?, ?, ?)", (id_, at, text))  # noqa: S608
