"""A file that changed, as one value for the ledger, the disk and git. Values only; it never asks."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import event as ev
from ..analysis.attribution import ATTRIBUTION_WINDOW_MS, likely_writers
from ..report import resolve_path


class Change(Struct, kw_only=True):
    """A file that changed. `path` is relative to the folder where it lies inside.

    `change` is created, modified, deleted or renamed (then `was` is its old name); `source` is tool, filesystem or git.
    What only git knows is None elsewhere: lines added and removed (None for a binary file too), the mode.
    """

    path: str
    change: str
    source: str
    call: str | None = None
    tool: str | None = None
    at: datetime | None = None
    inside: bool = True
    was: str | None = None
    binary: bool | None = None
    added: int | None = None
    removed: int | None = None
    mode: str | None = None

    def as_json(self, iso: Callable[[int | None], str | None]) -> dict[str, Any]:
        """The change under fixed names. Bytes of a name that are no UTF-8 are written out."""
        at = None if self.at is None else int(self.at.timestamp() * 1000)
        return {
            "path": _escape_invalid(self.path),
            "change": self.change,
            "was": None if self.was is None else _escape_invalid(self.was),
            "source": self.source,
            "call": self.call,
            "tool": self.tool,
            "at": iso(at),
            "inside": self.inside,
            "binary": self.binary,
            "added": self.added,
            "removed": self.removed,
            "mode": self.mode,
        }


def _escape_invalid(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


ATTRIBUTION_WINDOW = timedelta(milliseconds=ATTRIBUTION_WINDOW_MS)


class ChangeTracker:
    """Takes in events and notices in the order in which they came."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._open_calls: dict[str, ev.ToolCall] = {}  # calls that run
        self._call_starts: dict[
            str, tuple[str, int]
        ] = {}  # each call's tool, and how many changes there were before it
        self._last_finished_call: tuple[str, datetime | None] | None = (
            None  # the call that ended last
        )
        self._reported_at: dict[str, datetime | None] = {}  # what tools said last, by path
        self._changes: dict[tuple[str, str | None], Change] = {}
        self._order: dict[tuple[str, str | None], int] = {}
        self._next_order = 0

    def add(self, event: ev.Event, now: datetime | None = None) -> None:
        """Take in an event. `now` stands for its time where it carries none."""
        at = event.at or now
        if isinstance(event, ev.Started):
            self.root = self.root or event.cwd
        elif isinstance(event, ev.ToolCall):
            self._open_calls[event.id] = event
            self._call_starts[event.id] = (event.name, self._next_order)
        elif isinstance(event, ev.ToolResult):
            if self._open_calls.pop(event.id, None) is not None:
                self._last_finished_call = (event.id, at)
        elif isinstance(event, ev.FileChanged):
            if event.source == "tool":
                self._add_reported(event, at)
            else:
                self.add_observed(event.path, event.change, at, event.source)

    def add_observed(
        self, path: str, change: str, at: datetime | None, source: str = "filesystem"
    ) -> Change | None:
        """The file system shows a change. None where it is a tool's, which has said so or will."""
        name, _, inside = resolve_path(path, self.root)
        if name in self._reported_at and _is_near(self._reported_at[name], at):
            return None
        return self._merge(
            Change(
                path=name,
                change=change,
                source=source,
                call=self._responsible_call(at),
                at=at,
                inside=inside,
            )
        )

    def all_changes(self) -> list[Change]:
        """Every change, in the order in which they were first seen."""
        return sorted(
            self._changes.values(), key=lambda change: self._order[change.path, change.call]
        )

    # -- whose it is ---------------------------------------------------------------------------------------------

    def _responsible_call(self, at: datetime | None) -> str | None:
        """The call that a change belongs to: the newest that can change anything; else the one that has just ended."""
        writers = likely_writers(self._open_calls.values())
        if writers:
            return writers[-1].id
        if self._last_finished_call is not None and _is_near(self._last_finished_call[1], at):
            return self._last_finished_call[0]
        return None

    def _add_reported(self, event: ev.FileChanged, at: datetime | None) -> None:
        name, _, inside = resolve_path(event.path, self.root)
        self._reported_at[name] = at
        since = self._call_starts.get(event.call or "", ("", self._next_order))[1]
        seen = [
            key
            for key in self._changes
            if key[0] == name and (self._order[key] >= since or self._is_unattributed(key, at))
        ]
        for key in seen:  # the disk showed it while the call ran: one change, told by two
            if self._changes[key].source != "tool":
                del self._changes[key], self._order[key]
        self._merge(
            Change(
                path=name, change=event.change, source="tool", call=event.call, at=at, inside=inside
            )
        )

    def _is_unattributed(self, key: tuple[str, str | None], at: datetime | None) -> bool:
        """Whether the disk showed it a moment ago, when no call was known: an agent's line may be read after what it tells."""
        return key[1] is None and _is_near(self._changes[key].at, at)

    # -- the list ------------------------------------------------------------------------------------------------

    def _merge(self, change: Change) -> Change | None:
        key = (change.path, change.call)
        change.tool = self._call_starts.get(change.call or "", (None, 0))[0]
        known = self._changes.get(key)
        if known is None:
            self._changes[key], self._order[key] = change, self._next_order
            self._next_order += 1
            return change
        what = _combine(known.change, change.change)
        if what is None:
            del self._changes[key], self._order[key]
            return None
        source = "tool" if "tool" in (known.source, change.source) else known.source
        self._changes[key] = replace(known, change=what, source=source)
        return self._changes[key]


def merge_git_changes(known: list[Change], found: list[Change]) -> list[Change]:
    """The changes that are known, with what git says in the end: what nobody told is added, what is known is told better."""
    last = {change.path: change for change in known}
    left = list(known)
    for one in found:
        was = last.get(one.was) if one.was is not None else None
        change = last.get(one.path)
        if one.was is not None:
            teller = change or was
            merged = one if teller is None else replace(one, **_attribution(teller))
            rest = [
                other
                for other in left
                if other is teller or (other is not was and other is not change)
            ]
            left = [merged if other is teller else other for other in rest] + (
                [merged] if teller is None else []
            )
        elif change is None:
            left.append(one)
        else:
            change.binary, change.added, change.removed, change.mode = (
                one.binary,
                one.added,
                one.removed,
                one.mode,
            )
    return left


def _attribution(change: Change) -> dict[str, object]:
    """Who told it, and when."""
    return {"call": change.call, "tool": change.tool, "at": change.at, "source": change.source}


def _is_near(before: datetime | None, after: datetime | None) -> bool:
    if before is None or after is None:
        return False
    return abs(_with_timezone(after) - _with_timezone(before)) <= ATTRIBUTION_WINDOW


def _with_timezone(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


def _combine(first: str, then: str) -> str | None:
    """What two changes by the same call come to; None: nothing."""
    if first == "created":
        return None if then == "deleted" else "created"
    if first == "deleted" and then == "created":
        return "modified"
    return then
