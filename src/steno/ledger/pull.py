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

from .. import prices
from ..report import LedgerError, SourceError
from . import find
from .book import Booked, Pricer, book
from .fleeting import Fleeting
from .parts import Part, Told, read_part, unforeseen, unpacked
from .record import record, record_task
from .store import Store, UnfitError, open_ledger

GROUP = 16 << 20  # bytes that are read, and booked, together: enough to be fast, little enough to hold
ALONE = 48 << 20  # bytes below which starting more processes costs more than it saves
WORKERS = 4  # processes at most: more only wait for the disk and for the one that writes
SOURCE = ("path", "kind", "size", "mtime_ns", "inode", "done", "lines", "head", "tail", "state", "session", "run", "imported_at")


class Pulled(Struct):
    """What an import did."""

    files: int = 0  # files that had something new
    unchanged: int = 0
    unknown: int = 0  # files that are no recordings
    size: int = 0  # bytes that were read
    runs: int = 0
    requests: int = 0  # that were not known before
    calls: int = 0
    troubles: list[str] = []


Watch = Callable[[int, int], None]  # told after each group: bytes done, bytes in all


def pull(store: Store, paths: Sequence[str] | None, watch: Watch | None = None, sums: bool = False) -> Pulled:
    """Import what is new below `paths`, or in the agents' own folders. SourceError if the only path is not there.

    A file that cannot be taken in is one line of `troubles`, and all others are imported.

    With `sums`, of transcripts only the requests are read: all that a report of what was spent needs, in a third of the
    time. The rest is read by the next import that wants it; a request that is told twice counts once.
    """
    found = _found(paths)
    known = find.glanced(store) if sums else find.before(store)
    parts = find.news(found, known)
    for part in parts:
        part.sums = sums and part.kind == "transcript"
        if part.before is not None:
            part.state = _state(store, known[part.before].table, part.before)
    done = Pulled(unchanged=len(found.seen) - len(parts), unknown=found.unknown, troubles=found.troubles)
    total = sum(part.size - part.done for part in parts)
    priced = Pricer()
    for told in read_all(parts, total):
        _book_group(store, told, priced, done)
        if watch is not None:
            watch(done.size, total)
    return done


def _state(store: Store, table: str, path: str) -> bytes | None:
    found: bytes | None = store.rows(f"SELECT state FROM {table} WHERE path = ?", (path,))[0][0]  # noqa: S608  # our own names
    return found


def _found(paths: Sequence[str] | None) -> find.Found:
    found = find.Found()
    for path in paths or ():
        try:
            find.named(path, found)
        except SourceError as problem:
            if len(paths or ()) == 1:
                raise
            found.troubles.append(str(problem))
    if paths is None:
        found.seen += [file for agent, folder in find.places(os.environ) for file in find.transcripts(agent, folder)]
    found.seen = list({file.path: file for file in found.seen}.values())
    return found


# -- reading -----------------------------------------------------------------------------------------------------


def read_all(parts: list[Part], total: int) -> Iterator[list[Told]]:
    """What the parts tell, group by group, in their order."""
    groups = list(grouped(parts, int(os.environ.get("STENO_IMPORT_GROUP") or GROUP)))
    workers = min(os.cpu_count() or 1, WORKERS, len(groups))
    if total < ALONE or workers < 2 or not _may_share():
        for group in groups:
            yield [read_part(part) for part in group]
        return
    collects = gc.isenabled()
    gc.disable()  # hundreds of thousands of rows, and no circle among them
    try:
        yield from _shared(groups, workers)
    finally:
        if collects:
            gc.enable()


def _may_share() -> bool:
    from multiprocessing import current_process

    return not current_process().daemon  # one that is may have no children


def _shared(groups: list[list[Part]], workers: int) -> Iterator[list[Told]]:
    """By several processes. What one of them leaves that is killed, as for want of memory, is read here."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import get_context

    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(list[Told]).decode
    pool = ProcessPoolExecutor(workers, get_context("fork" if hasattr(os, "fork") else "spawn"), _begin_work)
    try:
        found = [pool.submit(_read_group, encode(group)) for group in groups]
        prices.ready()  # while the others read
        for group, read in zip(groups, found, strict=True):
            try:
                told = decode(read.result())
            except BrokenProcessPool:
                told = [read_part(part) for part in group]
            yield told
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin_work() -> None:
    """Ctrl-C is for the process that books: it ends the others when it has written what is done.

    Nothing that a reader makes is a circle, so that looking for some would only cost time.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


def _read_group(data: bytes) -> bytes:
    group = [read_part(part) for part in msgspec.msgpack.decode(data, type=list[Part])]
    try:
        return msgspec.msgpack.encode(group)
    except Exception:  # a value that cannot be sent: its file is told, the others go
        return msgspec.msgpack.encode([_sendable(told) for told in group])


def _sendable(told: Told) -> Told:
    try:
        msgspec.msgpack.encode(told)
    except Exception as problem:
        return Told(told.part, None, trouble=unforeseen(problem))
    return told


def grouped(parts: Iterable[Part], least: int) -> Iterator[list[Part]]:
    """Parts in their order, as many together as make a group of at least so many bytes."""
    group: list[Part] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.size - part.done
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


# -- booking -----------------------------------------------------------------------------------------------------


def _book_group(store: Store, group: list[Told], priced: Pricer, done: Pulled) -> None:
    """Book what some files told, together; where that fails, each by itself, so that one costs only itself."""
    try:
        with store.writing():
            kept = [told for told in group if told.batch is not None and _still(store, told.part)]
            booked = _book(store, kept, priced)
    except Exception as problem:
        if isinstance(problem, LedgerError) and not isinstance(problem, UnfitError):
            raise  # it is not the file: nothing can be written
        if len(group) == 1:
            kept, booked = [], []
            group[0].trouble = unforeseen(problem)
        else:
            for told in group:
                _book_group(store, [told], priced, done)
            return
    done.files += len(kept)
    done.runs += sum(told.report is not None for told in kept)
    done.size += sum(told.part.size - told.part.done for told in group)
    done.troubles += [f"{told.part.path}: {told.trouble}" for told in group if told.trouble is not None]
    done.requests += sum(new.requests for new in booked)
    done.calls += sum(new.calls for new in booked)


def _book(store: Store, group: list[Told], priced: Pricer) -> list[Booked]:
    plain = [told.batch for told in group if told.report is None and told.batch is not None]
    booked = [book(store, plain, priced)] if plain else []
    for told in group:
        if told.report is not None and told.batch is not None:
            at = told.part.mtime_ns // 1_000_000
            booked.append(record(store, unpacked(told.report), told.batch, at, priced, **told.more))
            record_task(store, told.more.get("task"))
    _remember(store, group)
    return booked


def _still(store: Store, part: Part) -> bool:
    """Whether the ledger still stands where this part begins: another import may have been faster."""
    if not part.done:
        return True
    asked = "SELECT done FROM sources WHERE path = ? UNION SELECT done FROM glances WHERE path = ?"
    return (part.done,) in store.rows(asked, (part.before, part.before))


def _remember(store: Store, group: list[Told]) -> None:
    now = int(time.time() * 1000)
    for told in group:
        if told.part.before not in (None, told.part.path):  # it was moved
            store.change("DELETE FROM sources WHERE path = ?", (told.part.before,))
            store.change("DELETE FROM glances WHERE path = ?", (told.part.before,))
    _put_sources(store, "sources", SOURCE, [_source(told, now) for told in group if not told.part.sums])
    _put_sources(store, "glances", SOURCE[:10], [_source(told, now)[:10] for told in group if told.part.sums])


def _put_sources(store: Store, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    clash = "ON CONFLICT (path) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    store.put(table, columns, rows, clash)


def _source(told: Told, now: int) -> tuple[Any, ...]:
    part = told.part
    place = (told.done, told.lines, told.head, told.tail, told.state, told.session, told.run, now)
    return (part.path, part.kind, part.size, part.mtime_ns, part.inode, *place)


# -- for those who ask -------------------------------------------------------------------------------------------


def freshen(store: Store, say: Callable[[str], None], watch: Watch | None = None, sums: bool = False) -> None:
    """Import what the agents wrote since the last time; with `sums`, only what was spent."""
    for trouble in pull(store, None, watch, sums).troubles:
        say(trouble)


def unkept(paths: Sequence[str], say: Callable[[str], None], tools: bool = False) -> Store:
    """A ledger in memory of what lies below the paths, with the sums and, if asked for, the tools; nothing is kept."""
    found = _found(paths)
    parts = find.news(found, {})
    if found.troubles and not parts:
        raise SourceError(found.troubles[0])
    plain = all(part.kind == "transcript" for part in parts)
    store: Store = Fleeting() if plain else open_ledger(":memory:")
    done, priced = Pulled(troubles=found.troubles), Pricer()
    for part in parts:
        part.sums = not tools
    for told in read_all(parts, sum(part.size for part in parts)):
        _book_group(store, told, priced, done)
    for trouble in done.troubles:
        say(trouble)
    return store
