"""Old details out of the ledger. Sums stay unless they are asked for too, and `sources` always: no import brings rows back.

What goes is whole sessions that were last at work before a time, with their runs, requests, calls and texts. Each leaves a
mark in `pruned`, so that neither a copy of its files nor a rebuild brings back what is gone.
"""

from msgspec import Struct

from ...answer.sums import COUNTS
from ..store import Store
from ..values import mark
from .search import forget
from .tools import COUNTED
from .where import Where
from .zones import HOUR

DETAILS = ("runs", "requests", "calls", "changes", "denials", "texts")
ROW = 200  # bytes that a row takes besides its text, roughly


class Gone(Struct):
    """What goes, or would go, from one table."""

    table: str
    rows: int
    bytes: int


class Old:
    """The sessions that were last at work before a time, as conditions in SQL."""

    def __init__(self, before: int, projects: tuple[str, ...] | None) -> None:
        self.before = before // HOUR * HOUR  # whole hours: sums are kept by the hour
        self.projects = projects
        own = Where().add("last_at < ?", self.before).among("project", projects)
        own.add("NOT EXISTS (SELECT 1 FROM runs WHERE runs.session = sessions.id AND runs.started_at >= ?)", self.before)
        self.sessions = own
        self.chosen = f"SELECT id FROM sessions{own.sql}"  # noqa: S608  # names of our own, here and below

    def of(self, table: str) -> Where:
        """The rows of a table that belong to them."""
        if table == "sessions":
            return self.sessions
        if table == "runs":  # also those whose session is not known
            lone = Where().add("started_at < ?", self.before).among("project", self.projects)
            known = "session NOT IN (SELECT id FROM sessions)"
            sql = f"session IN ({self.chosen}) OR ({' AND '.join(lone.parts)} AND (session IS NULL OR {known}))"
            return Where().add(f"({sql})", *self.sessions.values, *lone.values)
        if table == "notes":
            runs = self.of("runs")
            sql = f"session IN ({self.chosen}) OR run IN (SELECT id FROM runs{runs.sql})"  # noqa: S608
            return Where().add(f"({sql})", *self.sessions.values, *runs.values)
        return Where().add(f"session IN ({self.chosen})", *self.sessions.values)

    def sums(self, table: str) -> Where:
        """The rows of sums that are older."""
        left = Where().add("hour < ?", self.before // HOUR).among("project", self.projects)
        if table == "tool_use":
            return left
        lone = " AND ".join([*left.parts, "session NOT IN (SELECT id FROM sessions)"])
        sql = f"session IN ({self.chosen}) OR ({lone})"
        return Where().add(f"({sql})", *self.sessions.values, *left.values)


def would_go(store: Store, old: Old, everything: bool) -> list[Gone]:
    """What pruning takes away, table by table."""
    sizes = {"runs": "coalesce(length(report), 0) + coalesce(length(prompt), 0)", "texts": "length(text)"}
    found = []
    for table in (*DETAILS, "notes", "sessions", *(("spend", "tool_use") if everything else ())):
        where = old.sums(table) if table in ("spend", "tool_use") else old.of(table)
        size = f"coalesce(sum({ROW} + {sizes.get(table, '0')}), 0)"
        rows, bytes_ = store.rows(f"SELECT count(*), {size} FROM {table}{where.sql}", where.values)[0]  # noqa: S608
        found.append(Gone(table, int(rows), int(bytes_)))
    return found


def states(store: Store, old: Old) -> tuple[set[str], list[str]]:
    """The runs that go, and every folder of the ledger: in whose repositories their states may be kept."""
    where = old.of("runs")
    runs = {str(row[0]) for row in store.rows(f"SELECT id FROM runs{where.sql}", where.values)}  # noqa: S608
    return runs, [row[0] for row in store.rows("SELECT DISTINCT project FROM runs WHERE project IS NOT NULL")]


def prune(store: Store, old: Old, everything: bool) -> None:
    """Take it away, all or nothing. The index of texts is made anew by the next search."""
    with store.writing():
        forget(store)
        _mark(store, old)
        if everything:
            _drop(store, "spend", old.sums("spend"))
        else:
            _keep_names(store, old)
        for table in ("notes", *(name for name in DETAILS if name != "runs"), "runs", "sessions"):
            _drop(store, table, old.of(table))
        done = "verdict IS NOT NULL AND ended_at < ? AND id NOT IN (SELECT task FROM runs WHERE task IS NOT NULL)"
        _drop(store, "tasks", Where().add(done, old.before).among("project", old.projects))
        if everything:
            _drop(store, "tool_use", old.sums("tool_use"))
            _count_calls(store, old)


def _mark(store: Store, old: Old) -> None:
    """Remember which sessions and runs these were; a run that printed nothing has a session without a row.

    A run that goes on is not among them: it will be booked when it ends.
    """
    runs, sessions = old.of("runs").add("verdict IS NOT NULL"), old.of("sessions")
    gone = store.rows(f"SELECT id, session FROM runs{runs.sql}", runs.values)  # noqa: S608
    names = {row[0] for row in store.rows(f"SELECT id FROM sessions{sessions.sql}", sessions.values)}  # noqa: S608
    names |= {session for _, session in gone if session is not None}
    marks = [*(mark("runs", run) for run, _ in gone), *(mark("sessions", name) for name in names)]
    store.put("pruned", ("id",), [(id_,) for id_ in marks], "ON CONFLICT DO NOTHING")


def _keep_names(store: Store, old: Old) -> None:
    """Remember what was counted: a fork that copies it later must not count it again."""
    for table in ("requests", "calls"):
        where = old.of(table)
        store.change(f"INSERT INTO pruned (id) SELECT id FROM {table}{where.sql} ON CONFLICT DO NOTHING", where.values)  # noqa: S608


def _drop(store: Store, table: str, where: Where) -> None:
    store.change(f"DELETE FROM {table}{where.sql}", where.values)  # noqa: S608


def _count_calls(store: Store, old: Old) -> None:
    """Put back what the sums of that time owe to sessions that stay."""
    where = Where().add("c.at < ?", old.before).among("s.project", old.projects)
    columns = ", ".join(("hour", "agent", "project", "name", *COUNTS, "slowest_ms"))
    figures = f"{COUNTED}, coalesce(max(c.duration_ms), 0)"
    chosen = f"SELECT c.at / {HOUR}, c.agent, coalesce(s.project, ''), c.name, {figures} FROM calls c"  # noqa: S608
    joined = f"JOIN sessions s ON s.id = c.session{where.sql} GROUP BY 1, 2, 3, 4"
    store.change(f"INSERT INTO tool_use ({columns}) {chosen} {joined}", where.values)


def give_back(store: Store) -> None:
    """Give the room back to the disk. A PostgreSQL server does so by itself."""
    if store.kind == "sqlite":
        store.change("VACUUM")
