"""The way to one destination: what waits, what runs, what is tried again. It never prints.

A file is never on its way twice at the same time, and what is copied is what the disk holds when its turn comes: so its
changes arrive in order, and the last one wins. Several files go at once; one that lies below another waits for it.
"""

import heapq
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from ..files.inside import Missing, Outside, Root
from ..redact import redact
from .content import Content, content
from .journal import Journal
from .values import Failed, SyncOptions, Trouble
from .where import Destination

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds before a second try, doubled each time


class Job(Struct):
    """A file that is wanted there. `verify`: the destination is asked what it has, whatever we remember."""

    verify: bool
    due: float
    state: str = "later"  # later, ready, running, failed
    again: bool = False  # it changed while it was on its way
    tries: int = 0
    reason: str | None = None


class Tally(Struct):
    """What was done."""

    put: int = 0
    deleted: int = 0
    same: int = 0
    bytes: int = 0


class Lane:
    """One destination with its queue and its threads. `tell` gets (sign, name, text) for people."""

    def __init__(
        self,
        number: int,
        destination: Destination,
        root: Root,
        options: SyncOptions,
        journal: Journal | None,
        tell: Callable[[str, str, str], None],
    ) -> None:
        self.destination, self._root, self._options = destination, root, options
        self._number, self._journal, self._tell = number, journal, tell
        self.tally = Tally()
        self.outside: dict[str, None] = {}  # what leads out of the folder
        self.stays: dict[str, None] = {}  # what is gone here, and cannot be deleted there
        self._held: dict[str, int] = {}  # what was put, with its size, and is there only when the destination was closed well
        self._jobs: dict[str, Job] = {}
        self._later: list[tuple[float, int, str]] = []
        self._ready: dict[str, None] = {}
        self._running: set[str] = set()
        self._known: dict[str, bytes] = {}  # hashes of what is there, as far as we put it
        self._count = 0
        self._closed = False
        self._news = threading.Condition()
        self._begun = False
        self._threads: list[threading.Thread] = []

    # -- what is asked of it -------------------------------------------------------------------------------------

    def want(self, name: str, verify: bool = False) -> None:
        """A file is to be as it is on the disk. It never waits for the destination."""
        with self._news:
            if self._closed:
                return
            job = self._jobs.get(name)
            if job is None or job.state == "failed":
                if self._journal is not None and job is None:
                    self._journal.want(self._number, name)
                job = self._jobs[name] = Job(verify, time.monotonic() + self._options.debounce)
                self._put_off(name, job)
            elif job.state == "running":
                job.again = True
            elif job.state == "later" and job.tries:  # it failed with what it was: what it is now need not
                job.tries, job.due = 0, min(job.due, time.monotonic() + self._options.debounce)
                self._put_off(name, job)
            job.verify = job.verify or verify
            self._staff()

    def idle(self, seconds: float) -> bool:
        """Wait until nothing is left that could still be done; whether it is so."""
        with self._news:
            return self._news.wait_for(lambda: all(job.state == "failed" for job in self._jobs.values()), seconds)

    def left(self) -> list[Failed]:
        """What is not there."""
        with self._news:
            name = self.destination.name
            return [Failed(path, name, job.reason or "there was no time left for it") for path, job in self._jobs.items()]

    def known(self) -> list[str]:
        """What we know to be there."""
        with self._news:
            return list(self._known)

    def close(self) -> None:
        """Begin nothing more, and cut off what still goes on."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        try:
            self.destination.close()
        except Exception as problem:  # a destination that breaks its word
            self._end_held(_reason(problem))
        else:
            self._end_held(None)

    def _end_held(self, reason: str | None) -> None:
        """Where files are there only at the end: now they are, or, since it could not be closed, none of them is."""
        with self._news:
            if self._held and reason is not None:
                self._tell("✗", self.destination.name, f"{reason}; nothing was put there")
            for name, size in list(self._held.items()):
                if reason is not None:
                    job = self._jobs.setdefault(name, Job(True, 0.0))
                    job.state, job.reason = "failed", reason
                    continue
                self._add(put=1, size=size)
                self._tell("✓", name, "")
                if self._journal is not None and name not in self._jobs:
                    self._journal.done(self._number, name)

    # -- the queue -----------------------------------------------------------------------------------------------

    def _put_off(self, name: str, job: Job) -> None:
        job.state = "later"
        self._count += 1
        heapq.heappush(self._later, (job.due, self._count, name))
        self._news.notify()

    def _staff(self) -> None:
        """One thread more, as long as there is work for it."""
        if len(self._threads) < min(self._options.concurrency, len(self._jobs)):
            thread = threading.Thread(target=self._work, name=f"steno sync {self._number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _next(self) -> str | None:
        """The next file whose turn it is; waits for one. None: it is over."""
        with self._news:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    due, _, name = heapq.heappop(self._later)
                    job = self._jobs.get(name)
                    if job is not None and job.state == "later" and job.due == due:
                        job.state = "ready"
                        self._ready[name] = None
                free = next((name for name in self._ready if not self._clashes(name)), None)
                if free is not None:
                    del self._ready[free]
                    self._jobs[free].state = "running"
                    self._running.add(free)
                    return free
                self._news.wait(self._later[0][0] - now if self._later else None)
            return None

    def _clashes(self, name: str) -> bool:
        """Whether a file is on its way that this one lies below, or that lies below this one."""
        return any(name.startswith(other + "/") or other.startswith(name + "/") for other in self._running)

    def _work(self) -> None:
        while (name := self._next()) is not None:
            job, trouble = self._jobs[name], None
            try:
                self._carry(name, job.verify)
            except Trouble as problem:
                trouble = Trouble(_reason(problem), problem.lasting, problem.after)
            except Exception as problem:  # a destination that breaks its word must not end its lane
                trouble = Trouble(_reason(problem), lasting=True)
            with self._news:
                self._running.discard(name)
                self._settle(name, job, trouble)
                self._news.notify_all()

    def _settle(self, name: str, job: Job, trouble: Trouble | None) -> None:
        """One try is over."""
        now = time.monotonic()
        if self._closed and (trouble is not None or self.destination.at_end):
            return  # it was cut off by us: that is no fault of the destination
        if job.again:
            job.again, job.tries, job.due = False, 0, now + self._options.debounce
            self._put_off(name, job)
        elif trouble is None:
            del self._jobs[name]
            if self._journal is not None and name not in self._held:
                self._journal.done(self._number, name)
        else:
            job.tries += 1
            over = trouble.lasting or (self._options.tries is not None and job.tries >= self._options.tries)
            if str(trouble) != job.reason:
                self._tell("✗", name, str(trouble) + ("" if over else "; it is tried again"))
            job.reason = str(trouble)
            if over:
                job.state = "failed"
            else:
                job.due = now + max(min(FIRST_WAIT * 2 ** (job.tries - 1), LONGEST_WAIT), trouble.after or 0)
                self._put_off(name, job)

    # -- one file ------------------------------------------------------------------------------------------------

    def _carry(self, name: str, verify: bool) -> None:
        """Make a file there what it is here."""
        self._begin()
        target = name.removeprefix(self._options.prefix)
        try:
            found = content(self._root, name)
        except Missing as problem:  # what became of its files nobody can tell: none of them is deleted for it
            raise Trouble(str(problem.strerror), lasting=True) from None
        except Outside as problem:
            self._leads_out(name, str(problem.strerror))
            if self.destination.deletes and not self._options.dry_run:  # a file that it replaced may be there
                self._gone(name, target)
            return
        except (FileNotFoundError, NotADirectoryError):
            self._gone(name, target)
            return
        except OSError as problem:
            raise Trouble(problem.strerror or str(problem)) from None
        try:
            self._send(name, target, found, verify)
        finally:
            found.close()

    def _leads_out(self, name: str, why: str) -> None:
        """Something that is never copied: it is told once, and it is no failure. A folder is none of this."""
        if name not in self.outside and not self._root.is_folder(name):
            self.outside[name] = None
            self._tell("·", name, f"{why}; it is not copied")

    def _send(self, name: str, target: str, found: Content, verify: bool) -> None:
        key = found.digest + found.mode.to_bytes(2)
        ask = verify or self.destination.looks_first or self._options.dry_run
        known = self._known.get(name) == key and not (verify and self.destination.answers)
        if known or (ask and self.destination.same(target, found)):
            self._known[name] = key
            self._add(same=1)
        elif self._options.dry_run:
            self._tell("·", name, "would be copied")
        else:
            self._known.pop(name, None)
            self.destination.put(target, found)
            self._known[name] = key
            if self.destination.at_end:
                self._held[name] = found.size
            else:
                self._add(put=1, size=found.size)
                self._tell("✓", name, "")

    def _gone(self, name: str, target: str) -> None:
        self._known.pop(name, None)
        if not self._options.delete:
            return
        if not self.destination.deletes:
            self.stays[name] = None
            return
        if self._options.dry_run:
            self._tell("·", name, "would be deleted")
            return
        if self.destination.delete(target):
            self._add(deleted=1)
            self._tell("✓", name, "deleted")

    def _add(self, put: int = 0, deleted: int = 0, same: int = 0, size: int = 0) -> None:
        with self._news:
            tally = self.tally
            tally.put, tally.deleted, tally.same = tally.put + put, tally.deleted + deleted, tally.same + same
            tally.bytes += size

    def _begin(self) -> None:
        """Make the destination ready before its first file; a failure is tried again with the next."""
        if not self._begun and not self._options.dry_run:
            self.destination.begin()
            self._begun = True


def _reason(problem: Exception) -> str:
    """What went wrong, without any secret that stands in it."""
    return redact(str(problem) if isinstance(problem, Trouble) else f"{type(problem).__name__}: {problem}")
