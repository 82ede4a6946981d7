"""One list of what changed, from three sources: what tools said, what the file system showed, what git compared. Pure.

Each change names the call that was running. What one call did to one file is one change: what a tool says of it goes
before what was seen on the disk. It never looks at a disk itself.
"""

from datetime import datetime, timedelta, timezone

from msgspec.structs import replace

from .. import event as ev
from ..answer.changed import Change
from ..paths import placed
from ..whose import LATE, NAMED, QUIET

SOON = timedelta(milliseconds=LATE)


class Changes:
    """Takes in events and notices in the order in which they came."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._open: dict[str, ev.ToolCall] = {}  # calls that run
        self._began: dict[str, tuple[str, int]] = {}  # each call's tool, and how many changes there were before it
        self._closed: tuple[str, datetime | None] | None = None  # the call that ended last
        self._told: dict[str, datetime | None] = {}  # what tools said last, by path
        self._found: dict[tuple[str, str | None], Change] = {}
        self._order: dict[tuple[str, str | None], int] = {}
        self._count = 0

    def add(self, event: ev.Event, now: datetime | None = None) -> None:
        """Take in an event. `now` stands for its time where it carries none."""
        at = event.at or now
        if isinstance(event, ev.Started):
            self.root = self.root or event.cwd
        elif isinstance(event, ev.ToolCall):
            self._open[event.id] = event
            self._began[event.id] = (event.name, self._count)
        elif isinstance(event, ev.ToolResult):
            if self._open.pop(event.id, None) is not None:
                self._closed = (event.id, at)
        elif isinstance(event, ev.FileChanged):
            if event.source == "tool":
                self._tool(event, at)
            else:
                self.notice(event.path, event.change, at, event.source)

    def notice(self, path: str, change: str, at: datetime | None, source: str = "filesystem") -> Change | None:
        """The file system shows a change. None where it is a tool's, which has said so or will."""
        name, _, inside = placed(path, self.root)
        if name in self._told and _near(self._told[name], at):
            return None
        return self._put(Change(path=name, change=change, source=source, call=self._running(at), at=at, inside=inside))

    def found(self) -> list[Change]:
        """Every change, in the order in which they were first seen."""
        return sorted(self._found.values(), key=lambda change: self._order[change.path, change.call])

    # -- whose it is ---------------------------------------------------------------------------------------------

    def _running(self, at: datetime | None) -> str | None:
        """The call that a change belongs to: the newest that can change anything; else the one that has just ended."""
        able = [call for call in self._open.values() if call.kind not in QUIET]
        loose = [call for call in able if call.kind not in NAMED]
        if loose or able:
            return (loose or able)[-1].id
        if self._closed is not None and _near(self._closed[1], at):
            return self._closed[0]
        return None

    def _tool(self, event: ev.FileChanged, at: datetime | None) -> None:
        name, _, inside = placed(event.path, self.root)
        self._told[name] = at
        since = self._began.get(event.call or "", ("", self._count))[1]
        seen = [key for key in self._found if key[0] == name and (self._order[key] >= since or self._stray(key, at))]
        for key in seen:  # the disk showed it while the call ran: one change, told by two
            if self._found[key].source != "tool":
                del self._found[key], self._order[key]
        self._put(Change(path=name, change=event.change, source="tool", call=event.call, at=at, inside=inside))

    def _stray(self, key: tuple[str, str | None], at: datetime | None) -> bool:
        """Whether the disk showed it a moment ago, when no call was known: an agent's line may be read after what it tells."""
        return key[1] is None and _near(self._found[key].at, at)

    # -- the list ------------------------------------------------------------------------------------------------

    def _put(self, change: Change) -> Change | None:
        key = (change.path, change.call)
        change.tool = self._began.get(change.call or "", (None, 0))[0]
        known = self._found.get(key)
        if known is None:
            self._found[key], self._order[key] = change, self._count
            self._count += 1
            return change
        what = _together(known.change, change.change)
        if what is None:
            del self._found[key], self._order[key]
            return None
        source = "tool" if "tool" in (known.source, change.source) else known.source
        self._found[key] = replace(known, change=what, source=source)
        return self._found[key]


def compared(known: list[Change], found: list[Change]) -> list[Change]:
    """The changes that are known, with what git says in the end: what nobody told is added, what is known is told better."""
    last = {change.path: change for change in known}
    left = list(known)
    for one in found:
        was = last.get(one.was) if one.was is not None else None
        change = last.get(one.path)
        if one.was is not None:
            teller = change or was
            merged = one if teller is None else replace(one, **_teller(teller))
            rest = [other for other in left if other is teller or (other is not was and other is not change)]
            left = [merged if other is teller else other for other in rest] + ([merged] if teller is None else [])
        elif change is None:
            left.append(one)
        else:
            change.binary, change.added, change.removed, change.mode = one.binary, one.added, one.removed, one.mode
    return left


def _teller(change: Change) -> dict[str, object]:
    """Who told it, and when."""
    return {"call": change.call, "tool": change.tool, "at": change.at, "source": change.source}


def _near(before: datetime | None, after: datetime | None) -> bool:
    if before is None or after is None:
        return False
    return abs(_aware(after) - _aware(before)) <= SOON


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


def _together(first: str, then: str) -> str | None:
    """What two changes by the same call come to; None: nothing."""
    if first == "created":
        return None if then == "deleted" else "created"
    if first == "deleted" and then == "created":
        return "modified"
    return then
