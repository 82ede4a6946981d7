"""The import: finds what is new, has it read (by several processes where there is much), and books it group by group.

Each group is one transaction with its places in the files: an import that is killed at any moment has lost nothing and
counted nothing twice, and the next one goes on from there. Results are booked in the order of the files, whichever
process was first, so that the ledger is the same however the work was spread.
"""

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .. import pricing as prices
from ..errors import LedgerError, LedgerValueError, SourceError
from . import discovery as find
from .rollups import (
    CALL_COLUMNS,
    HOUR_MS,
    TOOL_USE_KEY_COLUMNS,
    TOOL_USE_SUM_COLUMNS,
    MemoryStore,
    SumDeltas,
    add_on_conflict,
    tool_use_delta,
)
from .rows import pruned_id
from .run_record import upsert_run, upsert_task
from .source_reader import PartResult, SourcePart, decode_report, describe_internal_error, read_part
from .store import MAX_IDS_PER_QUERY, Row, Store, open_ledger
from .upsert import Pricer, UpsertCounts, upsert_batches

GROUP_BYTES = (
    16 << 20
)  # bytes that are read, and booked, together: enough to be fast, little enough to hold
MIN_PARALLEL_BYTES = 48 << 20  # bytes below which starting more processes costs more than it saves
MAX_WORKERS = 4  # processes at most: more only wait for the disk and for the one that writes
SOURCE_COLUMNS = (
    "path",
    "kind",
    "size",
    "mtime_ns",
    "inode",
    "done",
    "lines",
    "head",
    "tail",
    "state",
    "session",
    "run",
    "imported_at",
)


class ImportResult(Struct):
    """What an import did."""

    files: int = 0  # files that had something new
    unchanged: int = 0
    unknown: int = 0  # files that are no recordings
    size: int = 0  # bytes that were read
    runs: int = 0
    requests: int = 0  # that were not known before
    calls: int = 0
    troubles: list[str] = []


ProgressCallback = Callable[[int, int], None]  # told after each group: bytes done, bytes in all


def import_sources(
    store: Store,
    paths: Sequence[str] | None,
    watch: ProgressCallback | None = None,
    requests_only: bool = False,
) -> ImportResult:
    """Import what is new below `paths`, or in the agents' own folders. SourceError if the only path is not there.

    A file that cannot be taken in is one line of `troubles`, and all others are imported.

    With `sums`, of transcripts only the requests are read: all that a report of what was spent needs, in a third of the
    time. The rest is read by the next import that wants it; a request that is told twice counts once.
    """
    found = _discover(paths)
    known = (
        find.load_known_and_partial_sources(store)
        if requests_only
        else find.load_known_sources(store)
    )
    parts = find.unread_parts(found, known)
    for part in parts:
        part.is_requests_only = requests_only and part.kind == "transcript"
        if part.previous_path is not None:
            part.state = _load_resume_state(
                store, known[part.previous_path].table, part.previous_path
            )
    done = ImportResult(
        unchanged=len(found.files) - len(parts), unknown=found.unrecognised, troubles=found.problems
    )
    total = sum(part.size - part.start_offset for part in parts)
    priced = Pricer()
    for told in read_parts(parts, total):
        _upsert_group(store, told, priced, done)
        if watch is not None:
            watch(done.size, total)
    return done


def _load_resume_state(store: Store, table: str, path: str) -> bytes | None:
    found: bytes | None = store.query(f"SELECT state FROM {table} WHERE path = ?", (path,))[0][
        0
    ]  # our own names
    return found


def _discover(paths: Sequence[str] | None) -> find.DiscoveredSources:
    found = find.DiscoveredSources()
    for path in paths or ():
        try:
            find.find_at_path(path, found)
        except SourceError as problem:
            if len(paths or ()) == 1:
                raise
            found.problems.append(str(problem))
    if paths is None:
        found.files += [
            file
            for agent, folder in find.transcript_folders(os.environ)
            for file in find.find_transcripts(agent, folder)
        ]
    found.files = list({file.path: file for file in found.files}.values())
    return found


# -- reading -----------------------------------------------------------------------------------------------------


def read_parts(parts: list[SourcePart], total: int) -> Iterator[list[PartResult]]:
    """What the parts tell, group by group, in their order."""
    groups = list(group_parts(parts, int(os.environ.get("STENO_IMPORT_GROUP") or GROUP_BYTES)))
    workers = min(os.cpu_count() or 1, MAX_WORKERS, len(groups))
    if total < MIN_PARALLEL_BYTES or workers < 2 or not _can_start_workers():
        for group in groups:
            yield [read_part(part) for part in group]
        return
    collects = gc.isenabled()
    gc.disable()  # hundreds of thousands of rows, and no circle among them
    try:
        yield from _read_in_workers(groups, workers)
    finally:
        if collects:
            gc.enable()


def _can_start_workers() -> bool:
    from multiprocessing import current_process

    return not current_process().daemon  # one that is may have no children


def _read_in_workers(groups: list[list[SourcePart]], workers: int) -> Iterator[list[PartResult]]:
    """By several processes. What one of them leaves that is killed, as for want of memory, is read here."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import get_context

    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(list[PartResult]).decode
    pool = ProcessPoolExecutor(
        workers, get_context("fork" if hasattr(os, "fork") else "spawn"), _init_worker
    )
    try:
        found = [pool.submit(_read_group_in_worker, encode(group)) for group in groups]
        prices.preload()  # while the others read
        for group, read in zip(groups, found, strict=True):
            try:
                told = decode(read.result())
            except BrokenProcessPool:
                told = [read_part(part) for part in group]
            yield told
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _init_worker() -> None:
    """Ctrl-C is for the process that books: it ends the others when it has written what is done.

    Nothing that a reader makes is a circle, so that looking for some would only cost time.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


def _read_group_in_worker(data: bytes) -> bytes:
    group = [read_part(part) for part in msgspec.msgpack.decode(data, type=list[SourcePart])]
    try:
        return msgspec.msgpack.encode(group)
    except Exception:  # a value that cannot be sent: its file is told, the others go
        return msgspec.msgpack.encode([_encodable_result(told) for told in group])


def _encodable_result(told: PartResult) -> PartResult:
    try:
        msgspec.msgpack.encode(told)
    except Exception as problem:
        return PartResult(told.part, None, problem=describe_internal_error(problem))
    return told


def group_parts(parts: Iterable[SourcePart], least: int) -> Iterator[list[SourcePart]]:
    """Parts in their order, as many together as make a group of at least so many bytes."""
    group: list[SourcePart] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.size - part.start_offset
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


# -- booking -----------------------------------------------------------------------------------------------------


def _upsert_group(
    store: Store, group: list[PartResult], priced: Pricer, done: ImportResult
) -> None:
    """Book what some files told, together; where that fails, each by itself, so that one costs only itself."""
    try:
        with store.transaction():
            kept = [
                told
                for told in group
                if told.batch is not None and _is_still_current(store, told.part)
            ]
            booked = _upsert_results(store, kept, priced)
    except Exception as problem:
        if isinstance(problem, LedgerError) and not isinstance(problem, LedgerValueError):
            raise  # it is not the file: nothing can be written
        if len(group) == 1:
            kept, booked = [], []
            group[0].problem = describe_internal_error(problem)
        else:
            for told in group:
                _upsert_group(store, [told], priced, done)
            return
    done.files += len(kept)
    done.runs += sum(told.report is not None for told in kept)
    done.size += sum(told.part.size - told.part.start_offset for told in group)
    done.troubles += [
        f"{told.part.path}: {told.problem}" for told in group if told.problem is not None
    ]
    done.requests += sum(new.requests for new in booked)
    done.calls += sum(new.calls for new in booked)


def _upsert_results(store: Store, group: list[PartResult], priced: Pricer) -> list[UpsertCounts]:
    plain = [told.batch for told in group if told.report is None and told.batch is not None]
    booked = [upsert_batches(store, plain, priced)] if plain else []
    for told in group:
        if told.report is not None and told.batch is not None:
            at = told.part.mtime_ns // 1_000_000
            booked.append(
                upsert_run(
                    store, decode_report(told.report), told.batch, at, priced, **told.run_columns
                )
            )
            upsert_task(store, told.run_columns.get("task"))
    _save_sources(store, group)
    return booked


def _is_still_current(store: Store, part: SourcePart) -> bool:
    """Whether the ledger still stands where this part begins: another import may have been faster."""
    if not part.start_offset:
        return True
    asked = "SELECT done FROM sources WHERE path = ? UNION SELECT done FROM glances WHERE path = ?"
    return (part.start_offset,) in store.query(asked, (part.previous_path, part.previous_path))


def _save_sources(store: Store, group: list[PartResult]) -> None:
    now = int(time.time() * 1000)
    for told in group:
        if told.part.previous_path not in (None, told.part.path):  # it was moved
            store.execute("DELETE FROM sources WHERE path = ?", (told.part.previous_path,))
            store.execute("DELETE FROM glances WHERE path = ?", (told.part.previous_path,))
    _upsert_sources(
        store,
        "sources",
        SOURCE_COLUMNS,
        [_source_row(told, now) for told in group if not told.part.is_requests_only],
    )
    _upsert_sources(
        store,
        "glances",
        SOURCE_COLUMNS[:10],
        [_source_row(told, now)[:10] for told in group if told.part.is_requests_only],
    )


def _upsert_sources(
    store: Store, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    clash = "ON CONFLICT (path) DO UPDATE SET " + ", ".join(
        f"{name} = excluded.{name}" for name in columns[1:]
    )
    store.upsert(table, columns, rows, clash)


def _source_row(told: PartResult, now: int) -> tuple[Any, ...]:
    part = told.part
    place = (
        told.end_offset,
        told.lines,
        told.head,
        told.tail,
        told.state,
        told.session,
        told.run,
        now,
    )
    return (part.path, part.kind, part.size, part.mtime_ns, part.inode, *place)


# -- for those who ask -------------------------------------------------------------------------------------------


def import_new(
    store: Store,
    say: Callable[[str], None],
    watch: ProgressCallback | None = None,
    requests_only: bool = False,
) -> None:
    """Import what the agents wrote since the last time; with `sums`, only what was spent."""
    for trouble in import_sources(store, None, watch, requests_only).troubles:
        say(trouble)


def build_memory_ledger(
    paths: Sequence[str], say: Callable[[str], None], tools: bool = False
) -> Store:
    """A ledger in memory of what lies below the paths, with the sums and, if asked for, the tools; nothing is kept."""
    found = _discover(paths)
    parts = find.unread_parts(found, {})
    if found.problems and not parts:
        raise SourceError(found.problems[0])
    plain = all(part.kind == "transcript" for part in parts)
    store: Store = MemoryStore() if plain else open_ledger(":memory:")
    done, priced = ImportResult(troubles=found.problems), Pricer()
    for part in parts:
        part.is_requests_only = not tools
    for told in read_parts(parts, sum(part.size for part in parts)):
        _upsert_group(store, told, priced, done)
    for trouble in done.troubles:
        say(trouble)
    return store


REBUILT_TABLES = ("requests", "calls", "changes", "denials", "texts", "runs", "spend", "sources")


class RebuildResult(Struct):
    """What was done."""

    sessions: int  # that were read again
    kept: int  # that stay as they are, because a file is gone
    pruned: int  # that stay as they are, because their details were pruned
    copy: str  # where the ledger as it was is kept
    pulled: ImportResult


def rebuild(
    store: Store, watch: ProgressCallback | None = None, tapes: Sequence[str] = ()
) -> RebuildResult:
    """Forget what can be read again, and read it again, with tapes that the ledger may not know. A copy is kept first."""
    copy = store.backup(0)
    files: dict[str, list[str]] = {}
    known = "SELECT path, session FROM sources UNION SELECT source, session FROM runs WHERE source IS NOT NULL"
    for path, session in store.query(known):
        files.setdefault(session or "", []).append(path)
    pruned = _pruned_sessions(store, files)
    left = {session: paths for session, paths in files.items() if session not in pruned}
    whole = [
        session
        for session, paths in left.items()
        if all(os.access(path, os.R_OK) for path in paths)
    ]
    told = {path for paths in files.values() for path in paths}
    paths = {path for session in whole for path in files[session]} | (set(tapes) - told)
    with store.transaction():
        store.execute("DELETE FROM glances")
        for start in range(0, len(whole), MAX_IDS_PER_QUERY):
            _delete_sessions(store, whole[start : start + MAX_IDS_PER_QUERY])
    return RebuildResult(
        len(whole),
        len(left) - len(whole),
        len(pruned),
        copy,
        import_sources(store, sorted(paths), watch),
    )


def _pruned_sessions(store: Store, sessions: Iterable[str]) -> set[str]:
    """Those of some sessions of which something was pruned: their sums are all that is left of it, and no file tells those."""
    marks = {pruned_id("sessions", session): session for session in sessions}
    return {marks[id_] for id_ in store.fetch_by_id("pruned", ("id",), marks)}


def _delete_sessions(store: Store, sessions: Sequence[str]) -> None:
    """Take the rows of some sessions away, and what they added to the sums."""
    names, chosen = ", ".join(CALL_COLUMNS), f"session IN ({','.join('?' * len(sessions))})"
    projects: dict[str, str] = dict(store.query("SELECT id, coalesce(project, '') FROM sessions"))
    _subtract_calls(
        store, store.query(f"SELECT {names} FROM calls WHERE {chosen}", sessions), projects
    )  # names of our own
    for table in REBUILT_TABLES:
        own = (
            " AND task IS NULL" if table == "runs" else ""
        )  # the row of a task's run is only filled anew
        store.execute(f"DELETE FROM {table} WHERE {chosen}{own}", sessions)
    store.execute(f"DELETE FROM sessions WHERE {chosen.replace('session', 'id', 1)}", sessions)


def _subtract_calls(store: Store, calls: Sequence[Row], projects: dict[str, str]) -> None:
    sums = SumDeltas()
    for row in calls:
        sums.add(
            (row[10] // HOUR_MS, row[2], projects.get(row[3], ""), row[7]), tool_use_delta(row), -1
        )
    rows = [(*key, *figures, 0) for key, figures in sorted(sums.by_key.items())]
    store.upsert(
        "tool_use",
        (*TOOL_USE_KEY_COLUMNS, *TOOL_USE_SUM_COLUMNS, "slowest_ms"),
        rows,
        add_on_conflict("tool_use", TOOL_USE_KEY_COLUMNS, TOOL_USE_SUM_COLUMNS, ("slowest_ms",)),
    )
    store.execute("DELETE FROM tool_use WHERE calls = 0 AND denied = 0")
