"""A sync that goes on while an agent works: events in, files out. It never prints, and `event` never waits.

One thread takes events and hints of the file system, says what changed, and hands files to the lanes; each destination
has a lane with threads of its own. So a slow destination delays neither the stream nor the other destinations.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from queue import SimpleQueue

from msgspec.structs import replace

from .. import event as ev
from ..codec.redact import redact
from ..errors import StenoError, SyncError
from ..workspace.change_watcher import ChangeWatcher, FileIndex, ObservedChange, preload
from ..workspace.changes import Change, ChangeTracker
from ..workspace.ignore_rules import IgnoreRules, check_patterns
from ..workspace.safe_path import FOLDER_MISSING, RootFolder, is_safe_name
from .destination_queue import DestinationQueue
from .destinations import Destination, check_destination, has_folder, make_destination
from .journal import Journal
from .options import SyncOptions, SyncSummary, escape_unprintable

RELEVANT_EVENTS = (ev.Started, ev.ToolCall, ev.ToolResult, ev.FileChanged)
MAX_PENDING_MESSAGES = (
    10_000  # that wait to be fetched; whoever never fetches them loses the oldest
)
POLL_SECONDS = 0.05  # seconds between two looks at whether it is done
END_OF_QUEUE = object()


class FolderSync:
    """Files on their way to every destination. `root` None: the folder that the agent says it works in."""

    def __init__(self, root: str | None, options: SyncOptions) -> None:
        for text in options.destinations:
            check_destination(text)
        check_patterns((*options.include, *options.exclude))
        options = replace(options, prefix=_clean_prefix(options.prefix))
        self.options = options
        self._started, self._started_ns = time.monotonic(), time.time_ns()
        self._messages: deque[str] = deque(maxlen=MAX_PENDING_MESSAGES)
        self._queues: list[DestinationQueue] = []
        self._root: RootFolder | None = None
        self._rules: IgnoreRules | None = None
        self._journal: Journal | None = None
        self._watcher: ChangeWatcher | None = None
        self._changes = ChangeTracker()
        self._early_events: list[ev.FileChanged] = []  # told before the folder was known
        self._prefix_seen = (
            not options.prefix
        )  # before that, nothing is deleted because the prefix is not there
        self._has_reported_root_loss = False  # it was told that the folder itself is gone
        self._outside_paths: dict[str, None] = {}
        self._problems: list[str] = []
        self._summary: SyncSummary | None = None
        self.has_unsaved_files = (
            False  # at the end: something is left, and could not be written down
        )
        self._inbox: SimpleQueue[object] = SimpleQueue()
        if root is not None:
            self._set_root(root)
        self._worker = threading.Thread(target=self._process_inbox, name="steno sync", daemon=True)
        self._worker.start()

    # -- what is asked of it -------------------------------------------------------------------------------------

    def add_event(self, event: ev.Event) -> None:
        """Take in an event. It is looked at later, in another thread."""
        if isinstance(event, RELEVANT_EVENTS):
            self._inbox.put((event, datetime.now(timezone.utc)))

    def enqueue(self, name: str, lane: int | None = None) -> None:
        """A file below the folder is to be copied, to every destination or to one."""
        for one in self._queues if lane is None else self._queues[lane : lane + 1]:
            one.enqueue(name, verify=True)

    def take_messages(self) -> list[str]:
        """What there is to say to people since the last call, a line each."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._messages.popleft())
        return found

    def changes(self) -> list[Change]:
        """What changed so far, by tools and in the file system."""
        return self._changes.all_changes()

    def finish(self, each: Callable[[], None] = lambda: None) -> SyncSummary:
        """Nothing more comes in: finish what is on its way, within the limit. `each` is called while it waits.

        A second call gives the same summary.
        """
        if self._summary is None:
            limit = self.options.limit
            until = time.monotonic() + limit if limit is not None else None
            self._stop_watcher(until)
            self._inbox.put(END_OF_QUEUE)
            self._worker.join(_remaining_seconds(until))
            self._wait_for_queues(until, each)
            self._summary = self._build_summary()
        return self._summary

    # -- events and hints ----------------------------------------------------------------------------------------

    def _process_inbox(self) -> None:
        if self.options.watch_files:
            preload()
        while (item := self._inbox.get()) is not END_OF_QUEUE:
            try:
                self._process_item(item)
            except Exception as problem:  # one that cannot be read must not end the others
                self._add_problem(f"{type(problem).__name__}: {problem}")
        try:
            self._final_pass()
        except Exception as problem:
            self._add_problem(f"{type(problem).__name__}: {problem}")
        if self._journal is not None and self.options.final_pass:
            self._journal.mark_scan_done()

    def _process_item(self, item: object) -> None:
        match item:
            case (ev.Event() as event, datetime() as now):
                self._process_event(event, now)
            case list() as notices:
                self._on_observed_changes(notices)
            case threading.Event() as taken:
                taken.set()

    def _process_event(self, event: ev.Event, now: datetime) -> None:
        if isinstance(event, ev.Started) and self._root is None and event.cwd:
            self._set_root(event.cwd, is_streaming=True)
        self._changes.add(event, now)
        if isinstance(event, ev.FileChanged):
            if self._root is None:
                self._early_events.append(event)
            else:
                self._on_file_changed(event)

    def _on_file_changed(self, event: ev.FileChanged) -> None:
        """A tool says that a file changed."""
        assert self._root is not None  # noqa: S101
        name = self._root.relative_name(event.path)
        if name is None:
            if event.path not in self._outside_paths:
                self._outside_paths[event.path] = None
                self._add_message(
                    "·",
                    event.path,
                    f"lies outside {escape_unprintable(self._root.given_path)} and is not copied",
                )
        elif self._includes(name):
            self._check_prefix()
            self._enqueue_all([name])

    def _on_observed_changes(self, notices: Iterable[ObservedChange]) -> None:
        assert self._root is not None  # noqa: S101
        now = datetime.now(timezone.utc)
        for notice in notices:
            self._changes.add_observed(
                os.path.join(self._changes.root or self._root.given_path, notice.name),  # noqa: PTH118
                notice.change,
                now,
            )
            if self._includes(notice.name) and not (
                notice.change == "deleted" and self._is_root_lost(self._root)
            ):
                self._check_prefix()
                self._enqueue_all([notice.name])

    def _final_pass(self) -> None:
        """At the end: every file, if that is asked for."""
        if self._root is None:
            if self.options.destinations and (self._early_events or self.options.final_pass):
                self._add_problem(
                    "the folder of the agent is not known, so nothing was copied: the stream never said it"
                )
            return
        if self.options.final_pass and self._rules is not None:
            self._check_prefix()
            if self._root.problem() == FOLDER_MISSING:
                self._add_problem(
                    f"{self._root.given_path}: {FOLDER_MISSING} any more, so its files were not compared"
                )
            elif not self._prefix_seen:
                self._add_problem(
                    f"--prefix={self.options.prefix.rstrip('/')}: {FOLDER_MISSING} in {self._root.given_path}"
                )
            else:
                self._compare_all(FileIndex(self._root, self._rules))

    def _compare_all(self, index: FileIndex) -> None:
        """Every file that is here, and with --delete also those that are only there."""
        index.scan()
        for folder, why in index.unreadable_dirs.items():
            if f"{folder}/".startswith(self.options.prefix) or self.options.prefix.startswith(
                f"{folder}/" if folder else ""
            ):
                self._add_problem(
                    f"{folder or index.root.given_path}: this folder cannot be read: {why}"
                )
        names = [name for name in index.names() if self._includes(name)]
        self._enqueue_all(names, verify=True)
        if self.options.delete and not self._is_root_lost(index.root):
            self._enqueue_deleted(set(names))

    def _is_root_lost(self, root: RootFolder) -> bool:
        """Whether the folder itself is gone: nobody can tell then what became of its files, so none is deleted for it."""
        amiss = root.problem()
        if amiss is not None and self.options.delete and not self._has_reported_root_loss:
            self._has_reported_root_loss = True
            self._add_problem(
                f"{root.given_path}: {amiss}, so nothing is deleted for what is no longer in it"
            )
        return amiss is not None

    def _enqueue_deleted(self, here: set[str]) -> None:
        """What destinations have and the folder does not. What is ignored here is left alone there."""
        for lane in self._queues:
            try:
                there = lane.destination.list_names()
            except SyncError as problem:
                self._add_problem(redact(f"{lane.destination.name}: {problem}"))
                continue
            if there is None and not self.options.watch_files:
                self._add_problem(
                    f"{lane.destination.name}: it cannot be asked what it has, so --delete does nothing there"
                )
            found = (
                lane.known_names()
                if there is None
                else [self.options.prefix + name for name in there]
            )
            for name in found:
                if name not in here and self._includes(name):
                    lane.enqueue(name, verify=True)

    # -- setting up and closing ----------------------------------------------------------------------------------

    def _set_root(self, path: str, is_streaming: bool = False) -> None:
        """The folder is known: get ready. `begun`: by the stream, so that what is wrong with one place can only be told."""
        options = self.options
        root = self._root = RootFolder(path)
        self._rules = IgnoreRules(root.real_path, options.include, options.exclude, options.ignore)
        found = self._make_destinations(root, is_streaming)
        if options.journal is not None and not options.dry_run and found:
            lasting = _persistent_options(options, [one.name for one in found.values()])
            self._journal = Journal(options.journal, root.real_path, lasting, self._add_problem)
            if options.final_pass:
                self._journal.mark_scan_started()
        for at, (text, one) in enumerate(found.items()):
            teller = self._message_callback(f" → {text}" if len(found) > 1 else "")
            self._queues.append(DestinationQueue(at, one, root, options, self._journal, teller))
        self._changes.root = self._changes.root or root.given_path
        if options.watch_files:
            self._start_watcher(root, self._rules)
        self._check_prefix()
        for event in self._early_events:
            self._on_file_changed(event)

    def _make_destinations(self, root: RootFolder, begun: bool) -> dict[str, Destination]:
        """Each place that is meant, once. One that cannot be does not stop the others, once the stream has begun."""
        found: dict[str, Destination] = {}
        places = set()
        for text in self.options.destinations:
            try:
                one = make_destination(text, root, self.options.prefix, self.options.delete)
            except StenoError as problem:
                if not begun:
                    raise
                self._add_problem(str(problem))
                continue
            path = getattr(one, "path", None)
            place = os.path.realpath(path) if path is not None else one.name
            if place not in places:
                places.add(place)
                found[text] = one
        return found

    def _start_watcher(self, root: RootFolder, rules: IgnoreRules) -> None:
        """Look at the file system too, from when this sync began."""
        self._watcher = ChangeWatcher(
            root,
            rules,
            self._inbox.put,
            lambda text: self._messages.append(f"[steno] · {escape_unprintable(text)}"),
        )
        self._watcher.start(self._started_ns)

    def _stop_watcher(self, until: float | None) -> None:
        """Look once more, when everything that was told is taken in: the folder may be told by the last of it."""
        taken = threading.Event()
        self._inbox.put(taken)
        taken.wait(_remaining_seconds(until))
        if self._watcher is not None and not self._watcher.stop(_remaining_seconds(until)):
            self._add_problem("there was no time left to look at every file")

    def _wait_for_queues(self, until: float | None, each: Callable[[], None]) -> None:
        for lane in self._queues:
            while not lane.wait_idle(POLL_SECONDS) and (until is None or time.monotonic() < until):
                each()
        for lane in self._queues:
            lane.close()

    def _build_summary(self) -> SyncSummary:
        failed = [one for lane in self._queues for one in lane.unfinished()]
        for lane in self._queues:
            if lane.undeletable_names:
                self._add_problem(
                    f"{lane.destination.name}: nothing can be deleted there: {_abbreviate(list(lane.undeletable_names))}"
                )
        every = self._worker.is_alive()
        if every:
            self._add_problem("there was no time left to take in every change")
        journal = self._close_journal(bool(failed), every and self.options.final_pass)
        tallies = [lane.counts for lane in self._queues]
        return SyncSummary(
            put=sum(one.put for one in tallies),
            deleted=sum(one.deleted for one in tallies),
            same=sum(one.same for one in tallies),
            bytes=sum(one.bytes for one in tallies),
            failed=failed,
            outside=list(
                dict.fromkeys(
                    [
                        *self._outside_paths,
                        *(name for lane in self._queues for name in lane.outside_names),
                    ]
                )
            ),
            problems=list(self._problems),
            seconds=round(time.monotonic() - self._started, 3),
            journal=journal,
        )

    def _close_journal(self, left: bool, every: bool) -> str | None:
        """Where what is left is written down; None where nothing is, or where not all of it could be."""
        if self._journal is None:
            return None
        self._journal.close(left or every)
        self.has_unsaved_files = (left or every) and not self._journal.is_intact
        return str(self._journal.path) if (left or every) and not self.has_unsaved_files else None

    # -- small things --------------------------------------------------------------------------------------------

    def _includes(self, name: str) -> bool:
        return (
            name.startswith(self.options.prefix)
            and self._rules is not None
            and self._rules.includes(name)
        )

    def _check_prefix(self) -> None:
        if not self._prefix_seen and self._root is not None:
            self._prefix_seen = has_folder(self._root, self.options.prefix.rstrip("/"))

    def _enqueue_all(self, names: Iterable[str], verify: bool = False) -> None:
        for name in names:
            for lane in self._queues:
                lane.enqueue(name, verify)

    def _add_problem(self, text: str) -> None:
        self._problems.append(text)
        self._messages.append(f"[steno] ✗ {escape_unprintable(text)}")

    def _message_callback(self, several: str) -> Callable[[str, str, str], None]:
        return lambda sign, name, text: self._add_message(sign, name + several, text)

    def _add_message(self, sign: str, name: str, text: str) -> None:
        self._messages.append(
            f"[steno] {sign} {escape_unprintable(name)}"
            + (f": {escape_unprintable(text)}" if text else "")
        )


def _remaining_seconds(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _persistent_options(options: SyncOptions, names: list[str]) -> SyncOptions:
    """The options as a later steno can use them, in whatever folder it is started."""
    places = [
        f"dir:{os.path.abspath(name[4:])}" if name.startswith("dir:") else name
        for name in names  # noqa: PTH100
    ]
    return replace(options, destinations=tuple(places), journal=None)


def _abbreviate(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _clean_prefix(given: str) -> str:
    """The folder that is required and taken away, with a slash behind."""
    found = given.strip("/")
    if found and not is_safe_name(found):
        raise StenoError(
            f"--prefix={given}: expected a folder below the one that is synced, such as src/site"
        )
    return f"{found}/" if found else ""
