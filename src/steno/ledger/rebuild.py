"""The ledger made anew from what it was made of: the tapes, recordings and transcripts that are still there.

A session is forgotten and read again only if every file that told of it can still be read, and nothing of it was pruned;
what nobody can or should tell again stays as it is, and so does what no file knows: the notes, and why a run of a task was
followed by another. It never touches a file of an agent.
"""

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from .pull import ImportResult, ProgressCallback, import_sources
from .store import MAX_IDS_PER_QUERY, Row, Store
from .sums import CALL_COLUMNS, HOUR_MS, TOOL_USE_KEY_COLUMNS, TOOL_USE_SUM_COLUMNS, SumDeltas, add_on_conflict, tool_use_delta
from .values import pruned_id

REBUILT_TABLES = ("requests", "calls", "changes", "denials", "texts", "runs", "spend", "sources")


class RebuildResult(Struct):
    """What was done."""

    sessions: int  # that were read again
    kept: int  # that stay as they are, because a file is gone
    pruned: int  # that stay as they are, because their details were pruned
    copy: str  # where the ledger as it was is kept
    pulled: ImportResult


def rebuild(store: Store, watch: ProgressCallback | None = None, tapes: Sequence[str] = ()) -> RebuildResult:
    """Forget what can be read again, and read it again, with tapes that the ledger may not know. A copy is kept first."""
    copy = store.backup(0)
    files: dict[str, list[str]] = {}
    known = "SELECT path, session FROM sources UNION SELECT source, session FROM runs WHERE source IS NOT NULL"
    for path, session in store.query(known):
        files.setdefault(session or "", []).append(path)
    pruned = _pruned_sessions(store, files)
    left = {session: paths for session, paths in files.items() if session not in pruned}
    whole = [session for session, paths in left.items() if all(os.access(path, os.R_OK) for path in paths)]
    told = {path for paths in files.values() for path in paths}
    paths = {path for session in whole for path in files[session]} | (set(tapes) - told)
    with store.transaction():
        store.execute("DELETE FROM glances")
        for start in range(0, len(whole), MAX_IDS_PER_QUERY):
            _delete_sessions(store, whole[start : start + MAX_IDS_PER_QUERY])
    return RebuildResult(len(whole), len(left) - len(whole), len(pruned), copy, import_sources(store, sorted(paths), watch))


def _pruned_sessions(store: Store, sessions: Iterable[str]) -> set[str]:
    """Those of some sessions of which something was pruned: their sums are all that is left of it, and no file tells those."""
    marks = {pruned_id("sessions", session): session for session in sessions}
    return {marks[id_] for id_ in store.fetch_by_id("pruned", ("id",), marks)}


def _delete_sessions(store: Store, sessions: Sequence[str]) -> None:
    """Take the rows of some sessions away, and what they added to the sums."""
    names, chosen = ", ".join(CALL_COLUMNS), f"session IN ({','.join('?' * len(sessions))})"
    projects: dict[str, str] = dict(store.query("SELECT id, coalesce(project, '') FROM sessions"))
    _subtract_calls(store, store.query(f"SELECT {names} FROM calls WHERE {chosen}", sessions), projects)  # noqa: S608  # names of our own
    for table in REBUILT_TABLES:
        own = " AND task IS NULL" if table == "runs" else ""  # the row of a task's run is only filled anew
        store.execute(f"DELETE FROM {table} WHERE {chosen}{own}", sessions)  # noqa: S608
    store.execute(f"DELETE FROM sessions WHERE {chosen.replace('session', 'id', 1)}", sessions)  # noqa: S608


def _subtract_calls(store: Store, calls: Sequence[Row], projects: dict[str, str]) -> None:
    sums = SumDeltas()
    for row in calls:
        sums.add((row[10] // HOUR_MS, row[2], projects.get(row[3], ""), row[7]), tool_use_delta(row), -1)
    rows = [(*key, *figures, 0) for key, figures in sorted(sums.by_key.items())]
    store.upsert("tool_use", (*TOOL_USE_KEY_COLUMNS, *TOOL_USE_SUM_COLUMNS, "slowest_ms"), rows, add_on_conflict("tool_use", TOOL_USE_KEY_COLUMNS, TOOL_USE_SUM_COLUMNS, ("slowest_ms",)))
    store.execute("DELETE FROM tool_use WHERE calls = 0 AND denied = 0")
