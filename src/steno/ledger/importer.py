"""Import what is new in transcripts and recordings.

Files are read in groups, by several processes if there is much to read. Each group is written in
one transaction together with the positions reached in its files: an import that is killed loses
nothing and counts nothing twice. Groups are written in the order of the files, so the ledger is
the same however the work was distributed.
"""

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import pricing
from ..errors import LedgerError, LedgerValueError, SourceError
from . import discovery
from .protocol import Row, Store, chunks, now_ms, placeholders, query_column, query_value
from .queries.search import index_imported
from .run_record import delete_run, has_fuller_report, upsert_run, upsert_task
from .source_reader import PartResult, SourcePart, decode_report, describe_internal_error, read_part
from .sqlite import IN_MEMORY
from .store import MemoryStore, open_ledger
from .totals import replace_on_conflict
from .upsert import Pricer, UpsertCounts, upsert_batches

GROUP_BYTES = 16 << 20  # read and written together
# Each group changes pages all over the ledger: a large import has larger groups to write less.
MAX_GROUP_BYTES = 48 << 20
GROUPS_PER_IMPORT = 8
BULK_BYTES = 128 << 20
MIN_PARALLEL_BYTES = 48 << 20  # below, starting processes costs more than it saves
MAX_WORKERS = 4  # more would only wait for the disk and for the process that writes
# Transcripts of which only the requests were read are in `glances`, with these columns.
PARTIAL_SOURCE_COLUMNS = (
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
)
SOURCE_COLUMNS = (*PARTIAL_SOURCE_COLUMNS, "session", "run", "imported_at")


class ImportResult(Struct):
    """Counts of an import; a file that could not be imported is a line in `troubles`."""

    files: int = 0  # with something new
    unchanged: int = 0
    unknown: int = 0  # not recordings
    skipped: list[str] = []  # those of them that were found in a folder
    size: int = 0  # bytes read
    runs: int = 0  # new ones, or finished since the last import
    requests: int = 0  # new ones
    calls: int = 0  # new ones
    troubles: list[str] = []


ProgressCallback = Callable[[int, int], None]  # bytes done, bytes in total; after each group


def import_sources(
    store: Store,
    paths: Sequence[str] | None,
    progress: ProgressCallback | None = None,
    requests_only: bool = False,
    recordings: Sequence[str] = (),
    index_texts: bool = True,
) -> ImportResult:
    """Import what is new at `paths`, or in the agents' own folders.

    `recordings` are imported too, unless the ledger has the run of that name. A file that cannot be
    imported doesn't stop the others. SourceError if the only path is missing.

    With `requests_only`, only the requests of transcripts are read: enough for a usage report, in a
    third of the time. The next full import reads the rest; repeated requests count once. Without
    `index_texts`, the index for searches is not updated.
    """
    sources = _discover(paths)
    _add_recordings(store, sources, recordings)
    known = discovery.load_known_sources(store, sources.files, requests_only)
    parts = discovery.unread_parts(sources, known)
    own_folders = tuple(f"{folder}/" for _, folder in discovery.transcript_folders(os.environ))
    for part in parts:
        part.is_requests_only = requests_only and part.kind == "transcript"
        part.is_own = part.path.startswith(own_folders)
        if part.previous_path is not None:
            table = known[part.previous_path].table
            sql = f"SELECT state FROM {table} WHERE path = ?"
            part.state = query_value(store, sql, (part.previous_path,))
    result = ImportResult(
        unchanged=len(sources.files) - len(parts),
        unknown=sources.unrecognised,
        skipped=sources.skipped,
        troubles=sources.problems,
    )
    total = sum(part.size - part.start_offset for part in parts)
    pricer = Pricer()
    store.set_bulk(total >= BULK_BYTES)
    for group in read_parts(parts, total):
        _upsert_group(store, group, pricer, result)
        if index_texts and not requests_only:
            index_imported(store)
        if progress is not None:
            progress(result.size, total)
    store.set_bulk(False)
    return result


def import_new(
    store: Store,
    warn: Callable[[str], None],
    progress: ProgressCallback | None = None,
    requests_only: bool = False,
) -> None:
    """Import what the agents wrote since the last import."""
    for problem in import_sources(store, None, progress, requests_only).troubles:
        warn(problem)


def build_memory_ledger(
    paths: Sequence[str], warn: Callable[[str], None], tools: bool = False
) -> Store:
    """Build a temporary ledger of what is at the paths: the usage and, with `tools`, the calls."""
    sources = _discover(paths)
    parts = discovery.unread_parts(sources, {})
    if sources.problems and not parts:
        raise SourceError(sources.problems[0])
    only_transcripts = all(part.kind == "transcript" for part in parts)
    store: Store = MemoryStore() if only_transcripts else open_ledger(IN_MEMORY)
    result = ImportResult(troubles=sources.problems)
    pricer = Pricer()
    for part in parts:
        part.is_requests_only = not tools
    for group in read_parts(parts, sum(part.size for part in parts)):
        _upsert_group(store, group, pricer, result)
    for problem in result.troubles:
        warn(problem)
    return store


def _discover(paths: Sequence[str] | None) -> discovery.DiscoveredSources:
    sources = discovery.DiscoveredSources()
    for path in paths or ():
        try:
            discovery.find_at_path(path, sources)
        except SourceError as error:
            if len(paths or ()) == 1:
                raise
            sources.problems.append(str(error))
    if paths is None:
        for agent, folder in discovery.transcript_folders(os.environ):
            sources.files += discovery.find_transcripts(agent, folder)
    sources.files = list({file.path: file for file in sources.files}.values())
    return sources


def _add_recordings(
    store: Store, sources: discovery.DiscoveredSources, recordings: Sequence[str]
) -> None:
    """Add the recordings of runs that are not in the ledger, or not finished there."""
    finished: set[str] = set()
    for part in chunks([Path(path).stem for path in recordings]):
        ids = placeholders(len(part))
        sql = f"SELECT id FROM runs WHERE verdict IS NOT NULL AND id IN ({ids})"
        finished.update(query_column(store, sql, part))
    for path in recordings:
        if Path(path).stem not in finished:
            try:
                discovery.find_at_path(path, sources)
            except SourceError as error:  # deleted meanwhile
                sources.problems.append(str(error))


# -- reading -------------------------------------------------------------------------------------


def read_parts(parts: list[SourcePart], total: int) -> Iterator[list[PartResult]]:
    """Yield the results of the parts, group by group, in their order."""
    size = min(max(GROUP_BYTES, total // GROUPS_PER_IMPORT), MAX_GROUP_BYTES)
    groups = list(group_parts(parts, int(os.environ.get("STENO_IMPORT_GROUP") or size)))
    workers = min(os.cpu_count() or 1, MAX_WORKERS, len(groups))
    if total < MIN_PARALLEL_BYTES or workers < 2 or not _can_start_workers():
        for group in groups:
            yield [read_part(part) for part in group]
        return
    gc_enabled = gc.isenabled()
    gc.disable()  # hundreds of thousands of rows without reference cycles
    try:
        yield from _read_in_workers(groups, workers)
    finally:
        if gc_enabled:
            gc.enable()


def _can_start_workers() -> bool:
    from multiprocessing import current_process

    return not current_process().daemon  # daemon processes can't have children


def _read_in_workers(groups: list[list[SourcePart]], workers: int) -> Iterator[list[PartResult]]:
    """Read with several processes; if one is killed (out of memory), read its group here."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import get_context

    encode = msgspec.msgpack.encode
    decode = msgspec.msgpack.Decoder(list[PartResult]).decode
    context = get_context("fork" if hasattr(os, "fork") else "spawn")
    pool = ProcessPoolExecutor(workers, context, _init_worker)
    try:
        submitted = (pool.submit(_read_group_in_worker, encode(group)) for group in groups)
        # A bounded number at a time: results that wait to be written take memory.
        pending = deque(islice(submitted, 2 * workers))
        pricing.preload()  # while the workers read
        for group in groups:
            try:
                results = decode(pending.popleft().result())
                pending.extend(islice(submitted, 1))
            except (BrokenProcessPool, IndexError):  # no worker left to submit to
                results = [read_part(part) for part in group]
            yield results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _init_worker() -> None:
    import signal

    # Ctrl-C is for the parent: it stops the workers after writing what is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # readers create no reference cycles


def _read_group_in_worker(data: bytes) -> bytes:
    group = [read_part(part) for part in msgspec.msgpack.decode(data, type=list[SourcePart])]
    try:
        return msgspec.msgpack.encode(group)
    except Exception:  # one result can't be encoded: report its file, send the others
        return msgspec.msgpack.encode([_encodable_result(result) for result in group])


def _encodable_result(result: PartResult) -> PartResult:
    try:
        msgspec.msgpack.encode(result)
    except Exception as error:
        return PartResult(result.part, None, problem=describe_internal_error(error))
    return result


def group_parts(parts: Iterable[SourcePart], min_bytes: int) -> Iterator[list[SourcePart]]:
    """Group consecutive parts into groups of at least `min_bytes`."""
    group: list[SourcePart] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.size - part.start_offset
        if size >= min_bytes:
            yield group
            group = []
            size = 0
    if group:
        yield group


# -- writing -------------------------------------------------------------------------------------


def _upsert_group(
    store: Store, group: list[PartResult], pricer: Pricer, result: ImportResult
) -> None:
    """Write a group in one transaction; if that fails, each file alone, to lose only that file."""
    try:
        with store.transaction():
            current = [
                part_result
                for part_result in group
                if part_result.batch is not None and _is_still_current(store, part_result.part)
            ]
            counts = _upsert_results(store, current, pricer)
    except Exception as error:
        if isinstance(error, LedgerError) and not isinstance(error, LedgerValueError):
            raise  # the ledger can't be written, whatever the file
        if len(group) > 1:
            for part_result in group:
                _upsert_group(store, [part_result], pricer, result)
            return
        current = []
        counts = []
        group[0].problem = describe_internal_error(error)
    result.files += len(current)
    result.runs += sum(count.runs for count in counts)
    result.requests += sum(count.requests for count in counts)
    result.calls += sum(count.calls for count in counts)
    for part_result in group:
        part = part_result.part
        result.size += part.size - part.start_offset
        if part_result.problem is not None:
            result.troubles.append(f"{part.path}: {part_result.problem}")


def _upsert_results(store: Store, group: list[PartResult], pricer: Pricer) -> list[UpsertCounts]:
    transcripts = [
        result.batch for result in group if result.report is None and result.batch is not None
    ]
    counts = [upsert_batches(store, transcripts, pricer)] if transcripts else []
    for result in group:
        if result.report is not None and result.batch is not None:
            report = decode_report(result.report)
            replaced = _run_of_source(store, result)
            if replaced is not None:
                delete_run(store, replaced)
            if report.lines.torn and has_fuller_report(store, report):
                continue
            counts.append(
                upsert_run(
                    store,
                    report,
                    result.batch,
                    at=result.part.mtime_ns // 1_000_000,
                    pricer=pricer,
                    is_derived=result.is_derived,
                    **result.run_columns,
                )
            )
            upsert_task(store, result.run_columns.get("task"))
    _save_sources(store, group)
    return counts


def _run_of_source(store: Store, result: PartResult) -> str | None:
    """The run that a file stood for at its last import, if it stands for another one now."""
    sql = (
        "SELECT r.id FROM sources s JOIN runs r ON r.id = s.run "
        "WHERE s.path = ? AND r.derived = 1 AND r.id <> ?"
    )
    for (run,) in store.query(sql, (result.part.path, result.run or "")):
        return str(run)
    return None


def _is_still_current(store: Store, part: SourcePart) -> bool:
    """Whether the ledger's position is where this part starts: another import may be ahead."""
    if not part.start_offset:
        return True
    sql = "SELECT done FROM sources WHERE path = ? UNION SELECT done FROM glances WHERE path = ?"
    return (part.start_offset,) in store.query(sql, (part.previous_path, part.previous_path))


def _save_sources(store: Store, group: list[PartResult]) -> None:
    now = now_ms()
    full_rows: list[Row] = []
    partial_rows: list[Row] = []
    for result in group:
        part = result.part
        if part.previous_path not in (None, part.path):  # moved
            store.execute("DELETE FROM sources WHERE path = ?", (part.previous_path,))
            store.execute("DELETE FROM glances WHERE path = ?", (part.previous_path,))
        row = _partial_source_row(result)
        if part.is_requests_only:
            partial_rows.append(row)
        else:
            full_rows.append((*row, result.session, result.run, now))
    for table, columns, rows in (
        ("sources", SOURCE_COLUMNS, full_rows),
        ("glances", PARTIAL_SOURCE_COLUMNS, partial_rows),
    ):
        store.upsert(table, columns, rows, replace_on_conflict(columns, "path"))


def _partial_source_row(result: PartResult) -> Row:
    part = result.part
    return (
        part.path,
        part.kind,
        part.size,
        part.mtime_ns,
        part.inode,
        result.end_offset,
        result.lines,
        result.head,
        result.tail,
        result.state,
    )
