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
from ..answer.changed import Change
from ..files.changes import Changes
from ..files.index import Index, Notice
from ..files.inside import GONE, Root, is_name
from ..files.looking import Looking
from ..files.rules import Rules, check_patterns
from ..files.watch import load
from ..redact import redact
from ..report import StenoError
from .journal import Journal
from .lane import Lane
from .values import SyncOptions, SyncSummary, Trouble, shown
from .where import Destination, check, destination, has_folder

OF_INTEREST = (ev.Started, ev.ToolCall, ev.ToolResult, ev.FileChanged)
LINES = 10_000  # that wait to be fetched; whoever never fetches them loses the oldest
STIR = 0.05  # seconds between two looks at whether it is done
END = object()


class Syncing:
    """Files on their way to every destination. `root` None: the folder that the agent says it works in."""

    def __init__(self, root: str | None, options: SyncOptions) -> None:
        for text in options.destinations:
            check(text)
        check_patterns((*options.include, *options.exclude))
        options = replace(options, prefix=_prefix(options.prefix))
        self.options = options
        self._began, self._began_ns = time.monotonic(), time.time_ns()
        self._lines: deque[str] = deque(maxlen=LINES)
        self._lanes: list[Lane] = []
        self._root: Root | None = None
        self._rules: Rules | None = None
        self._journal: Journal | None = None
        self._looking: Looking | None = None
        self._changes = Changes()
        self._early: list[ev.FileChanged] = []  # told before the folder was known
        self._prefix_seen = not options.prefix  # before that, nothing is deleted because the prefix is not there
        self._lost = False  # it was told that the folder itself is gone
        self._outside: dict[str, None] = {}
        self._problems: list[str] = []
        self._summary: SyncSummary | None = None
        self.forgets = False  # at the end: something is left, and could not be written down
        self._queue: SimpleQueue[object] = SimpleQueue()
        if root is not None:
            self._settle(root)
        self._clerk = threading.Thread(target=self._take_all, name="steno sync", daemon=True)
        self._clerk.start()

    # -- what is asked of it -------------------------------------------------------------------------------------

    def event(self, event: ev.Event) -> None:
        """Take in an event. It is looked at later, in another thread."""
        if isinstance(event, OF_INTEREST):
            self._queue.put((event, datetime.now(timezone.utc)))

    def want(self, name: str, lane: int | None = None) -> None:
        """A file below the folder is to be copied, to every destination or to one."""
        for one in self._lanes if lane is None else self._lanes[lane : lane + 1]:
            one.want(name, verify=True)

    def lines(self) -> list[str]:
        """What there is to say to people since the last call, a line each."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._lines.popleft())
        return found

    def changes(self) -> list[Change]:
        """What changed so far, by tools and in the file system."""
        return self._changes.found()

    def finish(self, each: Callable[[], None] = lambda: None) -> SyncSummary:
        """Nothing more comes in: finish what is on its way, within the limit. `each` is called while it waits.

        A second call gives the same summary.
        """
        if self._summary is None:
            limit = self.options.limit
            until = time.monotonic() + limit if limit is not None else None
            self._end_looking(until)
            self._queue.put(END)
            self._clerk.join(_left(until))
            self._wait(until, each)
            self._summary = self._sum_up()
        return self._summary

    # -- events and hints ----------------------------------------------------------------------------------------

    def _take_all(self) -> None:
        if self.options.watch_files:
            load()
        while (item := self._queue.get()) is not END:
            try:
                self._take(item)
            except Exception as problem:  # one that cannot be read must not end the others
                self._problem(f"{type(problem).__name__}: {problem}")
        try:
            self._look_again()
        except Exception as problem:
            self._problem(f"{type(problem).__name__}: {problem}")
        if self._journal is not None and self.options.final_pass:
            self._journal.looked()

    def _take(self, item: object) -> None:
        match item:
            case (ev.Event() as event, datetime() as now):
                self._event(event, now)
            case list() as notices:
                self._notices(notices)
            case threading.Event() as taken:
                taken.set()

    def _event(self, event: ev.Event, now: datetime) -> None:
        if isinstance(event, ev.Started) and self._root is None and event.cwd:
            self._settle(event.cwd, begun=True)
        self._changes.add(event, now)
        if isinstance(event, ev.FileChanged):
            if self._root is None:
                self._early.append(event)
            else:
                self._told(event)

    def _told(self, event: ev.FileChanged) -> None:
        """A tool says that a file changed."""
        assert self._root is not None  # noqa: S101
        name = self._root.name(event.path)
        if name is None:
            if event.path not in self._outside:
                self._outside[event.path] = None
                self._tell("·", event.path, f"lies outside {shown(self._root.given)} and is not copied")
        elif self._wants(name):
            self._see_prefix()
            self._spread([name])

    def _notices(self, notices: Iterable[Notice]) -> None:
        assert self._root is not None  # noqa: S101
        now = datetime.now(timezone.utc)
        for notice in notices:
            self._changes.notice(os.path.join(self._changes.root or self._root.given, notice.name), notice.change, now)  # noqa: PTH118
            if self._wants(notice.name) and not (notice.change == "deleted" and self._root_lost(self._root)):
                self._see_prefix()
                self._spread([notice.name])

    def _look_again(self) -> None:
        """At the end: every file, if that is asked for."""
        if self._root is None:
            if self.options.destinations and (self._early or self.options.final_pass):
                self._problem("the folder of the agent is not known, so nothing was copied: the stream never said it")
            return
        if self.options.final_pass and self._rules is not None:
            self._see_prefix()
            if self._root.amiss() == GONE:
                self._problem(f"{self._root.given}: {GONE} any more, so its files were not compared")
            elif not self._prefix_seen:
                self._problem(f"--prefix={self.options.prefix.rstrip('/')}: {GONE} in {self._root.given}")
            else:
                self._compare(Index(self._root, self._rules))

    def _compare(self, index: Index) -> None:
        """Every file that is here, and with --delete also those that are only there."""
        index.begin()
        for folder, why in index.unread.items():
            if f"{folder}/".startswith(self.options.prefix) or self.options.prefix.startswith(f"{folder}/" if folder else ""):
                self._problem(f"{folder or index.root.given}: this folder cannot be read: {why}")
        names = [name for name in index.names() if self._wants(name)]
        self._spread(names, verify=True)
        if self.options.delete and not self._root_lost(index.root):
            self._spread_gone(set(names))

    def _root_lost(self, root: Root) -> bool:
        """Whether the folder itself is gone: nobody can tell then what became of its files, so none is deleted for it."""
        amiss = root.amiss()
        if amiss is not None and self.options.delete and not self._lost:
            self._lost = True
            self._problem(f"{root.given}: {amiss}, so nothing is deleted for what is no longer in it")
        return amiss is not None

    def _spread_gone(self, here: set[str]) -> None:
        """What destinations have and the folder does not. What is ignored here is left alone there."""
        for lane in self._lanes:
            try:
                there = lane.destination.names()
            except Trouble as problem:
                self._problem(redact(f"{lane.destination.name}: {problem}"))
                continue
            if there is None and not self.options.watch_files:
                self._problem(f"{lane.destination.name}: it cannot be asked what it has, so --delete does nothing there")
            found = lane.known() if there is None else [self.options.prefix + name for name in there]
            for name in found:
                if name not in here and self._wants(name):
                    lane.want(name, verify=True)

    # -- setting up and closing ----------------------------------------------------------------------------------

    def _settle(self, path: str, begun: bool = False) -> None:
        """The folder is known: get ready. `begun`: by the stream, so that what is wrong with one place can only be told."""
        options = self.options
        root = self._root = Root(path)
        self._rules = Rules(root.real, options.include, options.exclude, options.ignore)
        found = self._destinations(root, begun)
        if options.journal is not None and not options.dry_run and found:
            lasting = _lasting(options, [one.name for one in found.values()])
            self._journal = Journal(options.journal, root.real, lasting, self._problem)
            if options.final_pass:
                self._journal.every()
        for at, (text, one) in enumerate(found.items()):
            teller = self._teller(f" → {text}" if len(found) > 1 else "")
            self._lanes.append(Lane(at, one, root, options, self._journal, teller))
        self._changes.root = self._changes.root or root.given
        if options.watch_files:
            self._listen(root, self._rules)
        self._see_prefix()
        for event in self._early:
            self._told(event)

    def _destinations(self, root: Root, begun: bool) -> dict[str, Destination]:
        """Each place that is meant, once. One that cannot be does not stop the others, once the stream has begun."""
        found: dict[str, Destination] = {}
        places = set()
        for text in self.options.destinations:
            try:
                one = destination(text, root, self.options.prefix, self.options.delete)
            except StenoError as problem:
                if not begun:
                    raise
                self._problem(str(problem))
                continue
            path = getattr(one, "path", None)
            place = os.path.realpath(path) if path is not None else one.name
            if place not in places:
                places.add(place)
                found[text] = one
        return found

    def _listen(self, root: Root, rules: Rules) -> None:
        """Look at the file system too, from when this sync began."""
        self._looking = Looking(root, rules, self._queue.put, lambda text: self._lines.append(f"[steno] · {shown(text)}"))
        self._looking.start(self._began_ns)

    def _end_looking(self, until: float | None) -> None:
        """Look once more, when everything that was told is taken in: the folder may be told by the last of it."""
        taken = threading.Event()
        self._queue.put(taken)
        taken.wait(_left(until))
        if self._looking is not None and not self._looking.stop(_left(until)):
            self._problem("there was no time left to look at every file")

    def _wait(self, until: float | None, each: Callable[[], None]) -> None:
        for lane in self._lanes:
            while not lane.idle(STIR) and (until is None or time.monotonic() < until):
                each()
        for lane in self._lanes:
            lane.close()

    def _sum_up(self) -> SyncSummary:
        failed = [one for lane in self._lanes for one in lane.left()]
        for lane in self._lanes:
            if lane.stays:
                self._problem(f"{lane.destination.name}: nothing can be deleted there: {_few(list(lane.stays))}")
        every = self._clerk.is_alive()
        if every:
            self._problem("there was no time left to take in every change")
        journal = self._close_journal(bool(failed), every and self.options.final_pass)
        tallies = [lane.tally for lane in self._lanes]
        return SyncSummary(
            put=sum(one.put for one in tallies),
            deleted=sum(one.deleted for one in tallies),
            same=sum(one.same for one in tallies),
            bytes=sum(one.bytes for one in tallies),
            failed=failed,
            outside=list(dict.fromkeys([*self._outside, *(name for lane in self._lanes for name in lane.outside)])),
            problems=list(self._problems),
            seconds=round(time.monotonic() - self._began, 3),
            journal=journal,
        )

    def _close_journal(self, left: bool, every: bool) -> str | None:
        """Where what is left is written down; None where nothing is, or where not all of it could be."""
        if self._journal is None:
            return None
        self._journal.close(left or every)
        self.forgets = (left or every) and not self._journal.sound
        return str(self._journal.path) if (left or every) and not self.forgets else None

    # -- small things --------------------------------------------------------------------------------------------

    def _wants(self, name: str) -> bool:
        return name.startswith(self.options.prefix) and self._rules is not None and self._rules.wants(name)

    def _see_prefix(self) -> None:
        if not self._prefix_seen and self._root is not None:
            self._prefix_seen = has_folder(self._root, self.options.prefix.rstrip("/"))

    def _spread(self, names: Iterable[str], verify: bool = False) -> None:
        for name in names:
            for lane in self._lanes:
                lane.want(name, verify)

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._lines.append(f"[steno] ✗ {shown(text)}")

    def _teller(self, several: str) -> Callable[[str, str, str], None]:
        return lambda sign, name, text: self._tell(sign, name + several, text)

    def _tell(self, sign: str, name: str, text: str) -> None:
        self._lines.append(f"[steno] {sign} {shown(name)}" + (f": {shown(text)}" if text else ""))


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _lasting(options: SyncOptions, names: list[str]) -> SyncOptions:
    """The options as a later steno can use them, in whatever folder it is started."""
    places = [f"dir:{os.path.abspath(name[4:])}" if name.startswith("dir:") else name for name in names]  # noqa: PTH100
    return replace(options, destinations=tuple(places), journal=None)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _prefix(given: str) -> str:
    """The folder that is required and taken away, with a slash behind."""
    found = given.strip("/")
    if found and not is_name(found):
        raise StenoError(f"--prefix={given}: expected a folder below the one that is synced, such as src/site")
    return f"{found}/" if found else ""
