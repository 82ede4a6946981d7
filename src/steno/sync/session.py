"""A sync while an agent works: events in, files out. `add_event` never blocks.

One thread takes events and file-system changes and passes files to the queues. Each destination has
a queue with its own threads: a slow one delays neither the stream nor the other destinations.
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
from .destination_queue import DestinationQueue, Journal
from .destinations import Destination, check_destination, has_folder, make_destination
from .options import SyncOptions, SyncSummary, abbreviate_names, escape_unprintable

RELEVANT_EVENTS = (ev.Started, ev.ToolCall, ev.ToolResult, ev.FileChanged)
MAX_PENDING_MESSAGES = 10_000  # then the oldest are dropped
POLL_SECONDS = 0.05
END_OF_QUEUE = object()


class FolderSync:
    """Syncs a folder to all destinations.

    With `prefer_agent_folder`, `root` is used only if the stream names no folder.
    """

    def __init__(self, root: str, options: SyncOptions, prefer_agent_folder: bool = False) -> None:
        for text in options.destinations:
            check_destination(text)
        check_patterns((*options.include, *options.exclude))
        options = replace(options, prefix=_clean_prefix(options.prefix))
        self.options = options
        self._started = time.monotonic()
        self._started_ns = time.time_ns()
        self._messages: deque[str] = deque(maxlen=MAX_PENDING_MESSAGES)
        self._queues: list[DestinationQueue] = []
        self._default_root = root
        self._root: RootFolder | None = None
        self._rules: IgnoreRules | None = None
        self._journal: Journal | None = None
        self._watcher: ChangeWatcher | None = None
        self._changes = ChangeTracker()
        self._prefix_seen = not options.prefix  # a missing prefix deletes nothing until then
        self._has_reported_root_loss = False
        self._outside_paths: dict[str, None] = {}
        self._ignored_names: set[str] = set()
        self._problems: list[str] = []
        self._summary: SyncSummary | None = None
        self._stop_reason: str | None = None
        self.has_unsaved_files = False  # at the end: unfinished files are not in the journal
        self._inbox: SimpleQueue[object] = SimpleQueue()
        if not prefer_agent_folder:
            self._set_root(root)
        self._worker = threading.Thread(target=self._process_inbox, name="steno sync", daemon=True)
        self._worker.start()

    # -- public ------------------------------------------------------------------------------------

    def add_event(self, event: ev.Event) -> None:
        """Queue an event."""
        if isinstance(event, RELEVANT_EVENTS):
            self._inbox.put((event, datetime.now(timezone.utc)))

    def enqueue(self, name: str, destination: int | None = None) -> None:
        """Copy a file to every destination, or to the one with this index."""
        index = destination
        for queue in self._queues if index is None else self._queues[index : index + 1]:
            queue.enqueue(name, verify=True)

    def take_messages(self) -> list[str]:
        """The messages for people since the last call."""
        messages = []
        with suppress(IndexError):
            while True:
                messages.append(self._messages.popleft())
        return messages

    def changes(self) -> list[Change]:
        """The changes so far, reported by tools and seen in the file system."""
        return self._changes.all_changes()

    def stop(self, reason: str, commands_only: bool = False) -> None:
        """Abort active transfers and `finish` at once, or only terminate the cmd: destinations.

        Unfinished files stay in the journal. May be called from a signal handler.
        """
        if not commands_only:
            self._stop_reason = reason
        for queue in self._queues:
            if not commands_only or queue.destination.name.startswith("cmd:"):
                queue.close(reason)

    def finish(self, on_wait: Callable[[], None] = lambda: None) -> SyncSummary:
        """Finish within the time limit; `on_wait` is called while waiting.

        A second call gives the same summary.
        """
        if self._summary is None:
            limit = self.options.limit if self._stop_reason is None else 0.0
            deadline = time.monotonic() + limit if limit is not None else None
            self._stop_watcher(deadline)
            self._inbox.put(END_OF_QUEUE)
            self._worker.join(_remaining_seconds(deadline))
            self._wait_for_queues(deadline, on_wait)
            self._summary = self._build_summary()
        return self._summary

    # -- events and file-system changes ------------------------------------------------------------

    def _process_inbox(self) -> None:
        if self.options.watch_files:
            preload()
        while (item := self._inbox.get()) is not END_OF_QUEUE:
            try:
                self._process_item(item)
            except Exception as error:  # the other items are still processed
                self._add_problem(f"{type(error).__name__}: {error}")
        try:
            self._final_pass()
        except Exception as error:
            self._add_problem(f"{type(error).__name__}: {error}")
        if self._journal is not None and self.options.final_pass:
            self._journal.mark_scan_done()

    def _process_item(self, item: object) -> None:
        match item:
            case (ev.Event() as event, datetime() as now):
                self._process_event(event, now)
            case list() as changes:
                self._on_observed_changes(changes)
            case threading.Event() as reached:
                if self._root is None:  # a stream without any of the relevant events
                    self._set_root(self._default_root, is_streaming=True)
                reached.set()

    def _process_event(self, event: ev.Event, now: datetime) -> None:
        if self._root is None:  # the first event names the folder, or none does
            named = event.cwd if isinstance(event, ev.Started) else None
            self._set_root(named or self._default_root, is_streaming=True)
        self._changes.add(event, now)
        if isinstance(event, ev.FileChanged):
            self._on_file_changed(event)

    def _on_file_changed(self, event: ev.FileChanged) -> None:
        """A tool reported a change."""
        assert self._root is not None  # noqa: S101  # for mypy
        name = self._root.relative_name(event.path)
        if name is None:
            if event.path not in self._outside_paths:
                self._outside_paths[event.path] = None
                root = escape_unprintable(self._root.given_path)
                self._add_message("·", event.path, f"outside {root}; not copied")
        elif self._includes(name):
            self._check_prefix()
            self._enqueue_all([name])
        elif self._rules is not None and (ignored := self._rules.ignored_part(name)) is not None:
            self._ignored_names.add(ignored)

    def _on_observed_changes(self, changes: Iterable[ObservedChange]) -> None:
        assert self._root is not None  # noqa: S101  # for mypy
        now = datetime.now(timezone.utc)
        root = self._changes.root or self._root.given_path
        for change in changes:
            path = os.path.join(root, change.name)  # noqa: PTH118  # keeps the root as given
            self._changes.add_observed(path, change.change, now)
            if self._includes(change.name) and not (
                change.change == "deleted" and self._is_root_lost(self._root)
            ):
                self._check_prefix()
                self._enqueue_all([change.name])

    def _final_pass(self) -> None:
        """Compare every file at the end, if requested."""
        if self.options.final_pass and self._root is not None and self._rules is not None:
            self._check_prefix()
            if self._root.problem() == FOLDER_MISSING:
                self._add_problem(
                    f"{self._root.given_path}: {FOLDER_MISSING}; its files were not compared"
                )
            elif not self._prefix_seen:
                prefix = self.options.prefix.rstrip("/")
                self._add_problem(f"--prefix={prefix}: {FOLDER_MISSING} in {self._root.given_path}")
            else:
                self._compare_all(FileIndex(self._root, self._rules, ignored_since_ns=0))

    def _compare_all(self, index: FileIndex) -> None:
        """Enqueue every file, and with --delete also those that only destinations have."""
        index.scan()
        self._ignored_names |= index.ignored_names
        prefix = self.options.prefix
        for folder, reason in index.unreadable_dirs.items():
            start = f"{folder}/" if folder else ""
            if f"{folder}/".startswith(prefix) or prefix.startswith(start):
                path = folder or index.root.given_path
                self._add_problem(f"{path}: cannot read folder: {reason}")
        names = [name for name in index.names() if self._includes(name)]
        self._enqueue_all(names, verify=True)
        if self.options.delete and not self._is_root_lost(index.root):
            self._enqueue_deleted(set(names))

    def _is_root_lost(self, root: RootFolder) -> bool:
        """Whether the folder itself is gone: then nothing is deleted in destinations."""
        problem = root.problem()
        if problem is not None and self.options.delete and not self._has_reported_root_loss:
            self._has_reported_root_loss = True
            self._add_problem(f"{root.given_path}: {problem}; deletions are not synced")
        return problem is not None

    def _enqueue_deleted(self, names: set[str]) -> None:
        """Enqueue what only destinations have, except files that are ignored here."""
        for queue in self._queues:
            try:
                listed = queue.destination.list_names()
            except SyncError as error:
                self._add_problem(f"{queue.destination.name}: {error}")
                continue
            if listed is None:
                remote_names = queue.known_names()
                if not self.options.watch_files:
                    self._add_problem(
                        f"{queue.destination.name}: cannot list files; --delete has no effect"
                    )
            else:
                remote_names = [self.options.prefix + name for name in listed]
            for name in remote_names:
                if name not in names and self._includes(name):
                    queue.enqueue(name, verify=True)

    # -- start and end -----------------------------------------------------------------------------

    def _set_root(self, path: str, is_streaming: bool = False) -> None:
        """Start the queues. `is_streaming`: errors can only be reported, not raised."""
        options = self.options
        root = self._root = RootFolder(path)
        self._rules = IgnoreRules(root.real_path, options.include, options.exclude, options.ignore)
        destinations = self._make_destinations(root, is_streaming)
        if options.journal is not None and not options.dry_run and destinations:
            names = [destination.name for destination in destinations.values()]
            journaled = _persistent_options(options, names)
            self._journal = Journal(options.journal, root.real_path, journaled, self._add_problem)
            if options.final_pass:
                self._journal.mark_scan_started()
        for index, (text, destination) in enumerate(destinations.items()):
            queue = DestinationQueue(
                index=index,
                destination=destination,
                root=root,
                options=options,
                journal=self._journal,
                on_message=self._message_callback(f" → {text}" if len(destinations) > 1 else ""),
            )
            self._queues.append(queue)
        self._changes.root = self._changes.root or root.given_path
        if options.watch_files:
            self._start_watcher(root, self._rules)
        self._check_prefix()

    def _make_destinations(self, root: RootFolder, is_streaming: bool) -> dict[str, Destination]:
        """Each distinct destination, by its argument. Invalid ones are skipped while streaming."""
        destinations: dict[str, Destination] = {}
        places = set()
        for text in self.options.destinations:
            try:
                destination = make_destination(text, root, self.options.prefix, self.options.delete)
            except StenoError as error:
                if not is_streaming:
                    raise
                self._add_problem(str(error))
                continue
            path = getattr(destination, "path", None)
            place = os.path.realpath(path) if path is not None else destination.name
            if place not in places:
                places.add(place)
                destinations[text] = destination
        return destinations

    def _start_watcher(self, root: RootFolder, rules: IgnoreRules) -> None:
        """Watch the file system, including changes since this sync was created."""
        self._watcher = ChangeWatcher(
            root,
            rules,
            self._inbox.put,
            lambda text: self._messages.append(f"[steno] · {escape_unprintable(text)}"),
        )
        self._watcher.start(self._started_ns)

    def _stop_watcher(self, deadline: float | None) -> None:
        """Stop watching once all events are processed: the last one may name the folder."""
        reached = threading.Event()
        self._inbox.put(reached)
        reached.wait(_remaining_seconds(deadline))
        if self._watcher is None:
            return
        if self._watcher.stop(_remaining_seconds(deadline)):
            self._ignored_names |= self._watcher.ignored_names
        else:
            reason = self._stop_reason or "out of time"
            self._add_problem(f"{reason}: not every file was checked for changes")

    def _wait_for_queues(self, deadline: float | None, on_wait: Callable[[], None]) -> None:
        for queue in self._queues:
            while not queue.wait_idle(POLL_SECONDS):
                if deadline is not None and time.monotonic() >= deadline:
                    break
                on_wait()
        for queue in self._queues:
            queue.close()

    def _build_summary(self) -> SyncSummary:
        failed = [file for queue in self._queues for file in queue.unfinished()]
        outside = dict.fromkeys(self._outside_paths)
        for queue in self._queues:
            outside |= dict.fromkeys(sorted(queue.outside_names))  # found in any order by threads
            if queue.undeletable_names:
                names = abbreviate_names(list(queue.undeletable_names))
                self._add_problem(f"{queue.destination.name}: deletion not supported: {names}")
        is_incomplete = self._worker.is_alive()
        if is_incomplete:
            reason = self._stop_reason or "out of time"
            self._add_problem(f"{reason}: not every change was processed")
        needs_scan = is_incomplete and self.options.final_pass
        journal = self._close_journal(bool(failed) or needs_scan)
        counts = [queue.counts for queue in self._queues]
        return SyncSummary(
            put=sum(count.put for count in counts),
            deleted=sum(count.deleted for count in counts),
            same=sum(count.same for count in counts),
            bytes=sum(count.bytes for count in counts),
            failed=failed,
            outside=list(outside),
            ignored=self._skipped_names(),
            problems=list(self._problems),
            seconds=round(time.monotonic() - self._started, 3),
            journal=journal,
        )

    def _skipped_names(self) -> list[str]:
        """What ignore rules skipped, as far as --prefix, --include and --exclude select it."""
        prefix = self.options.prefix
        return sorted(
            name
            for name in self._ignored_names
            if (name.startswith(prefix) or (name.endswith("/") and prefix.startswith(name)))
            and self._rules is not None
            and self._rules.selects(name)
        )

    def _close_journal(self, is_unfinished: bool) -> str | None:
        """The path of a journal that lists all unfinished files, else None."""
        if self._journal is None:
            return None
        self._journal.close(is_unfinished)
        self.has_unsaved_files = is_unfinished and not self._journal.is_intact
        return str(self._journal.path) if is_unfinished and not self.has_unsaved_files else None

    # -- helpers -----------------------------------------------------------------------------------

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
            for queue in self._queues:
                queue.enqueue(name, verify)

    def _add_problem(self, text: str) -> None:
        self._problems.append(redact(text))
        self._messages.append(f"[steno] ✗ {escape_unprintable(text)}")

    def _message_callback(self, suffix: str) -> Callable[[str, str, str], None]:
        return lambda sign, name, text: self._add_message(sign, name + suffix, text)

    def _add_message(self, sign: str, name: str, text: str) -> None:
        message = f"[steno] {sign} {escape_unprintable(name)}"
        self._messages.append(f"{message}: {escape_unprintable(text)}" if text else message)


def _remaining_seconds(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _persistent_options(options: SyncOptions, names: list[str]) -> SyncOptions:
    """The options for a later steno, which may be started in another folder."""
    places = tuple(
        f"dir:{_absolute(name[4:])}" if name.startswith("dir:") else name for name in names
    )
    return replace(options, destinations=places, journal=None)


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # Path.resolve would follow links


def _clean_prefix(given: str) -> str:
    """The prefix with a slash at its end, or empty."""
    prefix = given.strip("/")
    if prefix and not is_safe_name(prefix):
        raise StenoError(f"--prefix={given}: expected a subfolder of the source, such as src/site")
    return f"{prefix}/" if prefix else ""
