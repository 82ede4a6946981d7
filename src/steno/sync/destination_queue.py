"""The way to one destination: what waits, what runs, what is tried again. It never prints.

A file is never on its way twice at the same time, and what is copied is what the disk holds when its turn comes: so its
changes arrive in order, and the last one wins. Several files go at once; one that lies below another waits for it.
"""

import heapq
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from ..codec.redact import redact
from ..errors import MissingFolderError, OutsideFolderError, SyncError
from ..workspace.safe_path import RootFolder
from .content import Content, read_content
from .destinations import Destination
from .journal import Journal
from .options import FailedFile, SyncOptions

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0  # seconds before a second try, doubled each time


class SyncJob(Struct):
    """A file that is wanted there. `verify`: the destination is asked what it has, whatever we remember."""

    verify: bool
    due: float
    state: str = "later"  # later, ready, running, failed
    is_stale: bool = False  # it changed while it was on its way
    tries: int = 0
    reason: str | None = None


class TransferCounts(Struct):
    """What was done."""

    put: int = 0
    deleted: int = 0
    same: int = 0
    bytes: int = 0


class DestinationQueue:
    """One destination with its queue and its threads. `tell` gets (sign, name, text) for people."""

    def __init__(
        self,
        number: int,
        destination: Destination,
        root: RootFolder,
        options: SyncOptions,
        journal: Journal | None,
        tell: Callable[[str, str, str], None],
    ) -> None:
        self.destination, self._root, self._options = destination, root, options
        self._index, self._journal, self._on_message = number, journal, tell
        self.counts = TransferCounts()
        self.outside_names: dict[str, None] = {}  # what leads out of the folder
        self.undeletable_names: dict[
            str, None
        ] = {}  # what is gone here, and cannot be deleted there
        self._uncommitted: dict[
            str, int
        ] = {}  # what was put, with its size, and is there only when the destination was closed well
        self._jobs: dict[str, SyncJob] = {}
        self._delayed: list[tuple[float, int, str]] = []
        self._ready: dict[str, None] = {}
        self._running: set[str] = set()
        self._known_digests: dict[str, bytes] = {}  # hashes of what is there, as far as we put it
        self._sequence = 0
        self._closed = False
        self._condition = threading.Condition()
        self._is_open = False
        self._threads: list[threading.Thread] = []

    # -- what is asked of it -------------------------------------------------------------------------------------

    def enqueue(self, name: str, verify: bool = False) -> None:
        """A file is to be as it is on the disk. It never waits for the destination."""
        with self._condition:
            if self._closed:
                return
            job = self._jobs.get(name)
            if job is None or job.state == "failed":
                if self._journal is not None and job is None:
                    self._journal.mark_wanted(self._index, name)
                job = self._jobs[name] = SyncJob(verify, time.monotonic() + self._options.debounce)
                self._delay(name, job)
            elif job.state == "running":
                job.is_stale = True
            elif (
                job.state == "later" and job.tries
            ):  # it failed with what it was: what it is now need not
                job.tries, job.due = 0, min(job.due, time.monotonic() + self._options.debounce)
                self._delay(name, job)
            job.verify = job.verify or verify
            self._start_worker()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is left that could still be done; whether it is so."""
        with self._condition:
            return self._condition.wait_for(
                lambda: all(job.state == "failed" for job in self._jobs.values()), seconds
            )

    def unfinished(self) -> list[FailedFile]:
        """What is not there."""
        with self._condition:
            name = self.destination.name
            return [
                FailedFile(path, name, job.reason or "there was no time left for it")
                for path, job in self._jobs.items()
            ]

    def known_names(self) -> list[str]:
        """What we know to be there."""
        with self._condition:
            return list(self._known_digests)

    def close(self) -> None:
        """Begin nothing more, and cut off what still goes on."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        try:
            self.destination.close()
        except Exception as problem:  # a destination that breaks its word
            self._settle_uncommitted(_error_text(problem))
        else:
            self._settle_uncommitted(None)

    def _settle_uncommitted(self, reason: str | None) -> None:
        """Where files are there only at the end: now they are, or, since it could not be closed, none of them is."""
        with self._condition:
            if self._uncommitted and reason is not None:
                self._on_message("✗", self.destination.name, f"{reason}; nothing was put there")
            for name, size in list(self._uncommitted.items()):
                if reason is not None:
                    job = self._jobs.setdefault(name, SyncJob(True, 0.0))
                    job.state, job.reason = "failed", reason
                    continue
                self._add_counts(put=1, size=size)
                self._on_message("✓", name, "")
                if self._journal is not None and name not in self._jobs:
                    self._journal.mark_done(self._index, name)

    # -- the queue -----------------------------------------------------------------------------------------------

    def _delay(self, name: str, job: SyncJob) -> None:
        job.state = "later"
        self._sequence += 1
        heapq.heappush(self._delayed, (job.due, self._sequence, name))
        self._condition.notify()

    def _start_worker(self) -> None:
        """One thread more, as long as there is work for it."""
        if len(self._threads) < min(self._options.concurrency, len(self._jobs)):
            thread = threading.Thread(
                target=self._work, name=f"steno sync {self._index}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _take_next(self) -> str | None:
        """The next file whose turn it is; waits for one. None: it is over."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                while self._delayed and self._delayed[0][0] <= now:
                    due, _, name = heapq.heappop(self._delayed)
                    job = self._jobs.get(name)
                    if job is not None and job.state == "later" and job.due == due:
                        job.state = "ready"
                        self._ready[name] = None
                free = next(
                    (name for name in self._ready if not self._conflicts_with_running(name)), None
                )
                if free is not None:
                    del self._ready[free]
                    self._jobs[free].state = "running"
                    self._running.add(free)
                    return free
                self._condition.wait(self._delayed[0][0] - now if self._delayed else None)
            return None

    def _conflicts_with_running(self, name: str) -> bool:
        """Whether a file is on its way that this one lies below, or that lies below this one."""
        return any(
            name.startswith(other + "/") or other.startswith(name + "/") for other in self._running
        )

    def _work(self) -> None:
        while (name := self._take_next()) is not None:
            job, trouble = self._jobs[name], None
            try:
                self._sync_file(name, job.verify)
            except SyncError as problem:
                trouble = SyncError(_error_text(problem), problem.is_permanent, problem.retry_after)
            except Exception as problem:  # a destination that breaks its word must not end its lane
                trouble = SyncError(_error_text(problem), is_permanent=True)
            with self._condition:
                self._running.discard(name)
                self._finish_job(name, job, trouble)
                self._condition.notify_all()

    def _finish_job(self, name: str, job: SyncJob, trouble: SyncError | None) -> None:
        """One try is over."""
        now = time.monotonic()
        if self._closed and (trouble is not None or self.destination.commits_on_close):
            return  # it was cut off by us: that is no fault of the destination
        if job.is_stale:
            job.is_stale, job.tries, job.due = False, 0, now + self._options.debounce
            self._delay(name, job)
        elif trouble is None:
            del self._jobs[name]
            if self._journal is not None and name not in self._uncommitted:
                self._journal.mark_done(self._index, name)
        else:
            job.tries += 1
            over = trouble.is_permanent or (
                self._options.tries is not None and job.tries >= self._options.tries
            )
            if str(trouble) != job.reason:
                self._on_message("✗", name, str(trouble) + ("" if over else "; it is tried again"))
            job.reason = str(trouble)
            if over:
                job.state = "failed"
            else:
                job.due = now + max(
                    min(FIRST_RETRY_SECONDS * 2 ** (job.tries - 1), MAX_RETRY_SECONDS),
                    trouble.retry_after or 0,
                )
                self._delay(name, job)

    # -- one file ------------------------------------------------------------------------------------------------

    def _sync_file(self, name: str, verify: bool) -> None:
        """Make a file there what it is here."""
        self._open_destination()
        target = name.removeprefix(self._options.prefix)
        try:
            found = read_content(self._root, name)
        except (
            MissingFolderError
        ) as problem:  # what became of its files nobody can tell: none of them is deleted for it
            raise SyncError(str(problem.strerror), is_permanent=True) from None
        except OutsideFolderError as problem:
            self._report_outside(name, str(problem.strerror))
            if (
                self.destination.can_delete and not self._options.dry_run
            ):  # a file that it replaced may be there
                self._sync_deletion(name, target)
            return
        except (FileNotFoundError, NotADirectoryError):
            self._sync_deletion(name, target)
            return
        except OSError as problem:
            raise SyncError(problem.strerror or str(problem)) from None
        try:
            self._send(name, target, found, verify)
        finally:
            found.close()

    def _report_outside(self, name: str, why: str) -> None:
        """Something that is never copied: it is told once, and it is no failure. A folder is none of this."""
        if name not in self.outside_names and not self._root.is_folder(name):
            self.outside_names[name] = None
            self._on_message("·", name, f"{why}; it is not copied")

    def _send(self, name: str, target: str, found: Content, verify: bool) -> None:
        key = found.digest + found.mode.to_bytes(2)
        ask = verify or self.destination.is_cheap_to_compare or self._options.dry_run
        known = self._known_digests.get(name) == key and not (
            verify and self.destination.can_compare
        )
        if known or (ask and self.destination.has_same(target, found)):
            self._known_digests[name] = key
            self._add_counts(same=1)
        elif self._options.dry_run:
            self._on_message("·", name, "would be copied")
        else:
            self._known_digests.pop(name, None)
            self.destination.put(target, found)
            self._known_digests[name] = key
            if self.destination.commits_on_close:
                self._uncommitted[name] = found.size
            else:
                self._add_counts(put=1, size=found.size)
                self._on_message("✓", name, "")

    def _sync_deletion(self, name: str, target: str) -> None:
        self._known_digests.pop(name, None)
        if not self._options.delete:
            return
        if not self.destination.can_delete:
            self.undeletable_names[name] = None
            return
        if self._options.dry_run:
            self._on_message("·", name, "would be deleted")
            return
        if self.destination.delete(target):
            self._add_counts(deleted=1)
            self._on_message("✓", name, "deleted")

    def _add_counts(self, put: int = 0, deleted: int = 0, same: int = 0, size: int = 0) -> None:
        with self._condition:
            tally = self.counts
            tally.put, tally.deleted, tally.same = (
                tally.put + put,
                tally.deleted + deleted,
                tally.same + same,
            )
            tally.bytes += size

    def _open_destination(self) -> None:
        """Make the destination ready before its first file; a failure is tried again with the next."""
        if not self._is_open and not self._options.dry_run:
            self.destination.open()
            self._is_open = True


def _error_text(problem: Exception) -> str:
    """What went wrong, without any secret that stands in it."""
    return redact(
        str(problem) if isinstance(problem, SyncError) else f"{type(problem).__name__}: {problem}"
    )
