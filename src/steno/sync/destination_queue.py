"""The queue of one destination, and the journal of files still to be copied.

If steno is killed, `steno sync --pending` continues from it. One file per sync: a line with the
options, then `["+", destination, name]` for a file to copy and `["-", ...]` when it is done.
`["*"]` starts a scan of all files, `["."]` ends it, `["end"]`: no command was left running.
The file is locked while in use and removed when nothing is left.
"""

import fcntl
import heapq
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..codec.redact import redact
from ..errors import MissingFolderError, OutsideFolderError, SyncError
from ..private_files import create_private_folder
from ..process.process_tree import Orphan, is_owner_gone, own_name, terminate_owned
from ..workspace.safe_path import RootFolder, is_safe_name
from .destinations import Destination
from .files import Content, read_content
from .options import FailedFile, SyncOptions

JOURNAL_SCHEMA = "steno.sync/1"
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


class PendingSync(Struct):
    """An unfinished sync. `needs_full_scan`: it ended before all files were known.

    `lost_owner`: the steno (`RunTag.owner`) that was killed and may have left commands running.
    """

    path: Path
    root: str
    options: SyncOptions
    names_by_destination: dict[int, list[str]]
    needs_full_scan: bool = False
    lost_owner: str | None = None


class Journal:
    """Writes a journal; thread-safe. The first error is reported by `on_error` and ends it."""

    def __init__(
        self, path: str, root: str, options: SyncOptions, on_error: Callable[[str], None]
    ) -> None:
        self.path = Path(path)
        self.is_intact = True
        self._on_error = on_error
        self._lock = threading.Lock()
        self._fd = -1
        try:
            create_private_folder(self.path.parent)
            self._fd = os.open(path, _CREATE_FLAGS, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._give_up(error)
        head = {"schema": JOURNAL_SCHEMA, "root": root, "options": msgspec.to_builtins(options)}
        if any(destination.startswith("cmd:") for destination in options.destinations):
            head["owner"] = own_name()
        self._write(head)
        if not self.is_intact:
            self.close(keep_file=False)

    def mark_wanted(self, destination: int, name: str) -> None:
        """A file is to be copied."""
        self._write(["+", destination, name])

    def mark_done(self, destination: int, name: str) -> None:
        """A file is copied."""
        self._write(["-", destination, name])

    def mark_scan_started(self) -> None:
        """All files are to be compared; until that is done, the list is incomplete."""
        self._write(["*"])

    def mark_scan_done(self) -> None:
        """The list is complete."""
        self._write(["."])

    def close(self, keep_file: bool) -> None:
        """Close the journal, and remove it unless something is left."""
        if keep_file:
            self._write(["end"])
        with self._lock:
            if self._fd >= 0:
                if not keep_file:
                    with suppress(OSError):
                        self.path.unlink()
                os.close(self._fd)
                self._fd = -1

    def _write(self, value: Any) -> None:
        line = json.dumps(value).encode("ascii") + b"\n"  # json keeps names that are not UTF-8
        with self._lock:
            if self._fd < 0 or not self.is_intact:
                return
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.is_intact = False
        self._on_error(f"{self.path}: {error.strerror}: unfinished files cannot be recorded")


def pending_syncs(
    folder: Path, on_error: Callable[[str], None] = lambda text: None
) -> list[PendingSync]:
    """Unfinished syncs, oldest first. Journals in use are skipped."""
    pending = []
    for path in sorted(folder.glob("*.journal")):
        try:
            entry = read_journal(path)
        except OSError as error:
            on_error(f"{path}: {error.strerror}")
            continue
        if entry is not None and (
            entry.needs_full_scan or any(entry.names_by_destination.values())
        ):
            pending.append(entry)
    return pending


def read_journal(path: Path) -> PendingSync | None:
    """The content of a journal; None if it is in use or not a journal."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return None
        lines = [_decode_line(line) for line in file]
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("schema") != JOURNAL_SCHEMA:
        return None
    try:
        options = msgspec.convert(head.get("options"), SyncOptions)
    except msgspec.ValidationError:
        return None
    return PendingSync(
        path=path,
        root=str(head.get("root")),
        options=options,
        names_by_destination=_unfinished_names(lines[1:], len(options.destinations)),
        needs_full_scan=_is_scan_unfinished(lines),
        lost_owner=head.get("owner") if ["end"] not in lines else None,
    )


def terminate_lost_commands(folder: Path) -> list[Orphan]:
    """Terminate commands whose steno was killed, if its watchdog has not, and return them."""
    terminated = []
    for path in folder.glob("*.journal"):
        with suppress(OSError):
            entry = read_journal(path)
            if entry is not None and entry.lost_owner and is_owner_gone(entry.lost_owner):
                terminated += terminate_owned(entry.lost_owner)
                with path.open("ab") as file:
                    file.write(b'\n["end"]\n')  # its last line may be incomplete
    return terminated


def _is_scan_unfinished(lines: list[Any]) -> bool:
    marks = [line for line in lines if line in (["*"], ["."])]
    return bool(marks) and marks[-1] == ["*"]


def _unfinished_names(lines: list[Any], destination_count: int) -> dict[int, list[str]]:
    """The files left for each destination, in order. Truncated lines are ignored."""
    names: dict[int, dict[str, None]] = {index: {} for index in range(destination_count)}
    for line in lines:
        match line:
            case ["+", int(index), str(name)] if index in names and is_safe_name(name):
                names[index][name] = None
            case ["-", int(index), str(name)] if index in names:
                names[index].pop(name, None)
    return {index: list(left) for index, left in names.items()}


def _decode_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


FIRST_RETRY_SECONDS = 0.1  # doubled after each attempt
MAX_RETRY_SECONDS = 5.0


class SyncJob(Struct):
    """A file to copy. `verify`: compare with the destination, whatever was sent before."""

    verify: bool
    due: float
    state: str = "later"  # later, ready, running, failed
    is_stale: bool = False  # changed during the transfer
    tries: int = 0
    reason: str | None = None


class TransferCounts(Struct):
    """What was done."""

    put: int = 0
    deleted: int = 0
    same: int = 0
    bytes: int = 0


class DestinationQueue:
    """One destination with its queue and threads. `on_message` gets (sign, name, text)."""

    def __init__(
        self,
        index: int,
        destination: Destination,
        root: RootFolder,
        options: SyncOptions,
        journal: Journal | None,
        on_message: Callable[[str, str, str], None],
    ) -> None:
        self.destination = destination
        self._root = root
        self._options = options
        self._index = index
        self._journal = journal
        self._on_message = on_message
        self.counts = TransferCounts()
        self.outside_names: set[str] = set()  # links that lead out of the folder
        self.undeletable_names: dict[str, None] = {}  # deleted here, not deletable there
        self._uncommitted: dict[str, int] = {}  # sizes of files that `close` commits
        self._jobs: dict[str, SyncJob] = {}
        self._delayed: list[tuple[float, int, str]] = []  # heap of (due, sequence, name)
        self._ready: dict[str, None] = {}
        self._running: set[str] = set()
        self._sent_keys: dict[str, bytes] = {}  # hash and mode of what we sent
        self._sequence = 0
        self._closed = False
        self._close_reason = "out of time"
        self._condition = threading.Condition()
        self._is_open = False
        self._threads: list[threading.Thread] = []

    # -- public ------------------------------------------------------------------------------------

    def enqueue(self, name: str, verify: bool = False) -> None:
        """Copy a file, or delete it if it doesn't exist. Never blocks on the destination.

        Once closed, the file is only kept as unfinished.
        """
        with self._condition:
            job = self._jobs.get(name)
            due = time.monotonic() + self._options.debounce
            if job is None or job.state == "failed":
                if self._journal is not None and job is None:
                    self._journal.mark_wanted(self._index, name)
                job = self._jobs[name] = SyncJob(verify, due)
                self._delay(name, job)
            elif job.state == "running":
                job.is_stale = True
            elif job.state == "later" and job.tries:  # its new content may succeed
                job.tries = 0
                job.due = min(job.due, due)
                self._delay(name, job)
            job.verify = job.verify or verify
            if not self._closed:
                self._start_worker()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until only failed files are left, or it is closed; False after `seconds`."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._closed or all(job.state == "failed" for job in self._jobs.values()),
                seconds,
            )

    def unfinished(self) -> list[FailedFile]:
        """The files that were not copied."""
        with self._condition:
            return [
                FailedFile(path, self.destination.name, job.reason or self._close_reason)
                for path, job in self._jobs.items()
            ]

    def known_names(self) -> list[str]:
        """The files we sent."""
        with self._condition:
            return list(self._sent_keys)

    def close(self, reason: str | None = None) -> None:
        """Start nothing more, and abort active transfers. Only the first call has an effect."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._close_reason = reason or self._close_reason
            self._condition.notify_all()
        try:
            self.destination.close()
        except Exception as error:  # whatever a destination raises, the others are closed too
            self._settle_uncommitted(_error_text(error))
        else:
            self._settle_uncommitted(None)

    def _settle_uncommitted(self, reason: str | None) -> None:
        """After close: all uncommitted files are there, or, for a `reason`, none."""
        with self._condition:
            if self._uncommitted and reason is not None:
                self._on_message("✗", self.destination.name, f"{reason}; nothing was written")
            for name, size in list(self._uncommitted.items()):
                if reason is not None:
                    job = self._jobs.setdefault(name, SyncJob(True, 0.0))
                    job.state = "failed"
                    job.reason = reason
                    continue
                self._add_counts(put=1, size=size)
                self._on_message("✓", name, "")
                if self._journal is not None and name not in self._jobs:
                    self._journal.mark_done(self._index, name)

    # -- the queue ---------------------------------------------------------------------------------

    def _delay(self, name: str, job: SyncJob) -> None:
        job.state = "later"
        self._sequence += 1
        heapq.heappush(self._delayed, (job.due, self._sequence, name))
        self._condition.notify()

    def _start_worker(self) -> None:
        """Start another thread if there is work for it."""
        if len(self._threads) < min(self._options.concurrency, len(self._jobs)):
            name = f"steno sync {self._index}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _take_next(self) -> str | None:
        """Wait for the next file; None once closed."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                self._move_due_to_ready(now)
                name = next(
                    (name for name in self._ready if not self._conflicts_with_running(name)), None
                )
                if name is not None:
                    del self._ready[name]
                    self._jobs[name].state = "running"
                    self._running.add(name)
                    return name
                self._condition.wait(self._delayed[0][0] - now if self._delayed else None)
            return None

    def _move_due_to_ready(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, _, name = heapq.heappop(self._delayed)
            job = self._jobs.get(name)
            if job is not None and job.state == "later" and job.due == due:
                job.state = "ready"
                self._ready[name] = None

    def _conflicts_with_running(self, name: str) -> bool:
        """Whether a running transfer is of a path above or below this one."""
        return any(
            name.startswith(other + "/") or other.startswith(name + "/") for other in self._running
        )

    def _work(self) -> None:
        while (name := self._take_next()) is not None:
            job = self._jobs[name]
            failure = None
            try:
                self._sync_file(name, job.verify)
            except SyncError as error:
                failure = SyncError(_error_text(error), error.is_permanent, error.retry_after)
            except Exception as error:  # a bug in a destination must not stop the queue
                failure = SyncError(_error_text(error), is_permanent=True)
            with self._condition:
                self._running.discard(name)
                self._finish_job(name, job, failure)
                self._condition.notify_all()

    def _finish_job(self, name: str, job: SyncJob, failure: SyncError | None) -> None:
        if self._closed and (failure is not None or self.destination.commits_on_close):
            return  # we aborted it
        if job.is_stale:
            job.is_stale = False
            job.tries = 0
            job.due = time.monotonic() + self._options.debounce
            self._delay(name, job)
        elif failure is None:
            del self._jobs[name]
            if self._journal is not None and name not in self._uncommitted:
                self._journal.mark_done(self._index, name)
        else:
            self._retry_or_fail(name, job, failure)

    def _retry_or_fail(self, name: str, job: SyncJob, failure: SyncError) -> None:
        job.tries += 1
        limit = self._options.tries
        is_final = failure.is_permanent or (limit is not None and job.tries >= limit)
        reason = str(failure)
        if reason != job.reason:
            self._on_message("✗", name, reason if is_final else f"{reason}; retrying")
        job.reason = reason
        if is_final:
            job.state = "failed"
            return
        backoff = min(FIRST_RETRY_SECONDS * 2 ** (job.tries - 1), MAX_RETRY_SECONDS)
        job.due = time.monotonic() + max(backoff, failure.retry_after or 0)
        self._delay(name, job)

    # -- one file ----------------------------------------------------------------------------------

    def _sync_file(self, name: str, verify: bool) -> None:
        self._open_destination()
        target = name.removeprefix(self._options.prefix)
        try:
            content = read_content(self._root, name)
        except MissingFolderError as error:  # says nothing about its files: none is deleted
            raise SyncError(str(error.strerror), is_permanent=True) from None
        except OutsideFolderError as error:
            self._report_outside(name, str(error.strerror))
            # It may have replaced a file that was copied before.
            if self.destination.can_delete and not self._options.dry_run:
                self._sync_deletion(name, target)
            return
        except (FileNotFoundError, NotADirectoryError):
            self._sync_deletion(name, target)
            return
        except OSError as error:
            raise SyncError(error.strerror or str(error)) from None
        try:
            self._send(name, target, content, verify)
        finally:
            content.close()

    def _report_outside(self, name: str, reason: str) -> None:
        """Report a link that leads out, once; it is not a failure."""
        if name not in self.outside_names and not self._root.is_folder(name):
            self.outside_names.add(name)
            self._on_message("·", name, f"{reason}; not copied")

    def _send(self, name: str, target: str, content: Content, verify: bool) -> None:
        key = content.digest + content.mode.to_bytes(2)
        compare = verify or self.destination.is_cheap_to_compare or self._options.dry_run
        is_known = self._sent_keys.get(name) == key and not (
            verify and self.destination.can_compare
        )
        if is_known or (compare and self.destination.has_same(target, content)):
            self._sent_keys[name] = key
            self._add_counts(same=1)
        elif self._options.dry_run:
            self._on_message("·", name, "would be copied")
        else:
            self._sent_keys.pop(name, None)
            self.destination.put(target, content)
            self._sent_keys[name] = key
            if self.destination.commits_on_close:
                self._uncommitted[name] = content.size
            else:
                self._add_counts(put=1, size=content.size)
                self._on_message("✓", name, "")

    def _sync_deletion(self, name: str, target: str) -> None:
        self._sent_keys.pop(name, None)
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
            self.counts.put += put
            self.counts.deleted += deleted
            self.counts.same += same
            self.counts.bytes += size

    def _open_destination(self) -> None:
        """Open the destination before its first file; after a failure, before the next."""
        if not self._is_open and not self._options.dry_run:
            self.destination.open()
            self._is_open = True


def _error_text(error: Exception) -> str:
    """The message without secrets."""
    is_expected = isinstance(error, SyncError)
    return redact(str(error) if is_expected else f"{type(error).__name__}: {error}")
