"""The ledger made anew from what it was made of: the tapes, recordings and transcripts that are still there.

A session is forgotten and read again only if every file that told of it can still be read, and nothing of it was pruned;
what nobody can or should tell again stays as it is, and so does what no file knows: the notes, and why a run of a task was
followed by another. It never touches a file of an agent.
"""

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from .pull import Pulled, Watch, pull
from .store import IN_ONE_QUESTION, Row, Store
from .sums import CALL, HOUR, USE_KEY, USED, Sums, adding, used
from .values import mark

TABLES = ("requests", "calls", "changes", "denials", "texts", "runs", "spend", "sources")


class Rebuilt(Struct):
    """What was done."""

    sessions: int  # that were read again
    kept: int  # that stay as they are, because a file is gone
    pruned: int  # that stay as they are, because their details were pruned
    copy: str  # where the ledger as it was is kept
    pulled: Pulled


def rebuild(store: Store, watch: Watch | None = None, tapes: Sequence[str] = ()) -> Rebuilt:
    """Forget what can be read again, and read it again, with tapes that the ledger may not know. A copy is kept first."""
    copy = store.keep_copy(0)
    files: dict[str, list[str]] = {}
    known = "SELECT path, session FROM sources UNION SELECT source, session FROM runs WHERE source IS NOT NULL"
    for path, session in store.rows(known):
        files.setdefault(session or "", []).append(path)
    pruned = _pruned(store, files)
    left = {session: paths for session, paths in files.items() if session not in pruned}
    whole = [session for session, paths in left.items() if all(os.access(path, os.R_OK) for path in paths)]
    told = {path for paths in files.values() for path in paths}
    paths = {path for session in whole for path in files[session]} | (set(tapes) - told)
    with store.writing():
        store.change("DELETE FROM glances")
        for start in range(0, len(whole), IN_ONE_QUESTION):
            _forget(store, whole[start : start + IN_ONE_QUESTION])
    return Rebuilt(len(whole), len(left) - len(whole), len(pruned), copy, pull(store, sorted(paths), watch))


def _pruned(store: Store, sessions: Iterable[str]) -> set[str]:
    """Those of some sessions of which something was pruned: their sums are all that is left of it, and no file tells those."""
    marks = {mark("sessions", session): session for session in sessions}
    return {marks[id_] for id_ in store.known("pruned", ("id",), marks)}


def _forget(store: Store, sessions: Sequence[str]) -> None:
    """Take the rows of some sessions away, and what they added to the sums."""
    names, chosen = ", ".join(CALL), f"session IN ({','.join('?' * len(sessions))})"
    projects: dict[str, str] = dict(store.rows("SELECT id, coalesce(project, '') FROM sessions"))
    _take_away(store, store.rows(f"SELECT {names} FROM calls WHERE {chosen}", sessions), projects)  # noqa: S608  # names of our own
    for table in TABLES:
        own = " AND task IS NULL" if table == "runs" else ""  # the row of a task's run is only filled anew
        store.change(f"DELETE FROM {table} WHERE {chosen}{own}", sessions)  # noqa: S608
    store.change(f"DELETE FROM sessions WHERE {chosen.replace('session', 'id', 1)}", sessions)  # noqa: S608


def _take_away(store: Store, calls: Sequence[Row], projects: dict[str, str]) -> None:
    sums = Sums()
    for row in calls:
        sums.add((row[10] // HOUR, row[2], projects.get(row[3], ""), row[7]), used(row), -1)
    rows = [(*key, *figures, 0) for key, figures in sorted(sums.by_key.items())]
    store.put("tool_use", (*USE_KEY, *USED, "slowest_ms"), rows, adding("tool_use", USE_KEY, USED, ("slowest_ms",)))
    store.change("DELETE FROM tool_use WHERE calls = 0 AND denied = 0")
