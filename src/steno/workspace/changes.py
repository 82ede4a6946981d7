"""What a run changed on disk, and a patch built from its tool results.

Only Write and Edit report content. Other files are listed by `files_without_content`. In a
repository, git makes a better patch.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from difflib import unified_diff
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from .. import event as ev
from ..analysis.attribution import ATTRIBUTION_WINDOW_MS, RunningWriters
from ..codec.decode import DECODE_ERRORS, decode_lenient, decode_raw, text_of
from ..report import resolve_path

NO_NEWLINE_MARK = "\\ No newline at end of file\n"


class PatchEdit(Struct):
    """The replacements in an edit's input."""

    old_string: str | None = None
    new_string: str | None = None
    replace_all: bool | None = None
    edits: list["PatchEdit"] | None = None


class Hunk(Struct, rename="camel"):
    """A hunk of a structured patch."""

    old_start: int = 1
    new_start: int = 1
    lines: list[str] = []


class FileVersions(Struct):
    """A file's text before the first change (None: new file) and after the last.

    `is_known` is False if the agent did not report one of them.
    """

    before: str | None
    after: str
    is_known: bool = True


class PatchBuilder:
    """Collects the events of a run."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._calls: dict[str, ev.ToolCall] = {}
        self._results: dict[str, ev.ToolResultDetails] = {}
        self.files: dict[str, FileVersions] = {}

    def add(self, event: ev.Event) -> None:
        """Add an event."""
        if isinstance(event, ev.Started):
            self.root = self.root or event.cwd
        elif isinstance(event, ev.ToolCall) and event.kind in (
            "file_write",
            "file_edit",
            "notebook",
        ):
            self._calls[event.id] = event
        elif (
            isinstance(event, ev.ToolResult)
            and event.id in self._calls
            and isinstance(event.output, ev.ToolResultDetails)
        ):
            self._results[event.id] = event.output
        elif isinstance(event, ev.FileChanged):
            self._add_change(event)

    def _add_change(self, event: ev.FileChanged) -> None:
        path, _, inside = resolve_path(event.path, self.root)
        if not inside:
            return
        call = self._calls.pop(event.call or "", None)
        details = self._results.pop(event.call or "", None)
        before, after = None, None
        if details is not None:
            before, after = _before_and_after(call, details)
        known = self.files.get(path)
        if after is None or (before is None and event.change != "created"):
            self.files[path] = FileVersions(known.before if known is not None else None, "", False)
        elif known is None:
            self.files[path] = FileVersions(before, after)
        elif known.is_known:
            known.after = after

    def files_without_content(self) -> list[str]:
        """The changed files whose content was not reported."""
        return [path for path, versions in self.files.items() if not versions.is_known]

    def build_patch(self, inner: str = "") -> bytes:
        """The patch in git's format. `inner`: the folder's path in its repository."""
        parts = [
            file_patch(inner + path, versions.before, versions.after)
            for path, versions in sorted(self.files.items())
            if versions.is_known
        ]
        return "".join(parts).encode("utf-8", "surrogateescape")


def collect_patch(events: Iterable[ev.Event], root: str | None = None) -> PatchBuilder:
    """A builder with the events of a run."""
    builder = PatchBuilder(root)
    for event in events:
        builder.add(event)
    return builder


def _before_and_after(
    call: ev.ToolCall | None, details: ev.ToolResultDetails
) -> tuple[str | None, str | None]:
    """The text before and after one change; None for what was not reported."""
    before = None if bytes(details.original_file) == b"null" else text_of(details.original_file)
    if bytes(details.content) != b"null":
        return before, text_of(details.content)
    if before is None or call is None:
        return before, None
    edit = decode_lenient(call.input, PatchEdit)
    after = apply_edits(before, edit.edits if edit.edits is not None else [edit])
    return before, after if after is not None else _apply_hunks(before, details)


def apply_edits(text: str, edits: list[PatchEdit]) -> str | None:
    """Apply edits in turn; None if one does not match."""
    for edit in edits:
        if (
            edit.old_string is None
            or edit.new_string is None
            or (edit.old_string not in text and edit.old_string)
        ):
            return None
        text = text.replace(edit.old_string, edit.new_string, -1 if edit.replace_all else 1)
    return text


def _apply_hunks(text: str, details: ev.ToolResultDetails) -> str | None:
    """Apply a structured patch; None if it does not match (it may show tabs as blanks)."""
    try:
        hunks = decode_lenient(details.structured_patch, list[Hunk])
    except DECODE_ERRORS:
        return None
    old = text.split("\n")
    new: list[str] = []
    position = 0
    for hunk in hunks:
        before = [line[1:] for line in hunk.lines if line[:1] in (" ", "-")]
        start = hunk.old_start - 1
        if start < position or old[start : start + len(before)] != before:
            return None
        new += old[position:start] + [line[1:] for line in hunk.lines if line[:1] in (" ", "+")]
        position = start + len(before)
    return "\n".join(new + old[position:]) if hunks else None


def call_patch(call: ev.ToolCall, details: ev.ToolResultDetails | None) -> str:
    """What one call changed in a file, as hunks: by its result, else by its input; else empty."""
    if call.kind not in ("file_write", "file_edit", "notebook"):
        return ""
    if details is not None:
        with suppress(*DECODE_ERRORS):
            hunks = decode_lenient(details.structured_patch, list[Hunk])
            if hunks:
                return "".join(map(_format_hunk, hunks))
        before, after = _before_and_after(call, details)
        if after is not None and (before is not None or details.type == "create"):
            return _hunks(before or "", after)
    return "".join(_hunks(old, new) for old, new in _replacements(decode_raw(call.input)))


def _replacements(tool_input: Any) -> Iterator[tuple[str, str]]:
    """The old and new texts in the input of an edit, under the names that agents use."""
    if not isinstance(tool_input, dict):
        return
    edits = tool_input.get("edits")
    for edit in edits if isinstance(edits, list) else [tool_input]:
        for suffix in ("_string", "String", "_str") if isinstance(edit, dict) else ():
            old = edit.get(f"old{suffix}")
            new = edit.get(f"new{suffix}")
            if isinstance(old, str) and isinstance(new, str):
                yield old, new


def _format_hunk(hunk: Hunk) -> str:
    old = sum(line[:1] in (" ", "-") for line in hunk.lines)
    new = sum(line[:1] in (" ", "+") for line in hunk.lines)
    head = f"@@ -{hunk.old_start},{old} +{hunk.new_start},{new} @@"
    return "".join(f"{line}\n" for line in (head, *hunk.lines))


def _hunks(before: str, after: str) -> str:
    """The hunks of a patch, without the names of the files."""
    lines = list(unified_diff(_split_lines(before), _split_lines(after)))[2:]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


# -- the patch format ------------------------------------------------------------------------------


def file_patch(path: str, before: str | None, after: str) -> str:
    """The patch of one file; empty if nothing changed."""
    if before == after:
        return ""
    old = quote_path(f"a/{path}")
    new = quote_path(f"b/{path}")
    head = f"diff --git {old} {new}\n"
    if before is None:
        head += "new file mode 100644\n"
        old = "/dev/null"
    lines = list(unified_diff(_split_lines(before or ""), _split_lines(after), old, new))
    if lines:
        end = "\t\n" if " " in path else "\n"  # as git marks the end of a name with blanks
        lines[:2] = [f"--- {old}{end}", f"+++ {new}{end}"]
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n{NO_NEWLINE_MARK}" for line in lines
    )


def _split_lines(text: str) -> list[str]:
    """Split at newlines only; str.splitlines knows other line ends."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def quote_path(name: str) -> str:
    """A name as git writes it: in quotes if it has quotes, backslashes or control characters."""
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    quoted = "".join(
        escapes.get(letter) or (f"\\{ord(letter):03o}" if _is_control(letter) else letter)
        for letter in name
    )
    return name if quoted == name else f'"{quoted}"'


def _is_control(letter: str) -> bool:
    return ord(letter) < 32 or ord(letter) == 127


class Change(Struct, kw_only=True):
    """A changed file. `path` is relative if it is inside the agent's folder.

    `change` is created, modified, deleted or renamed (then `was` is the old name); `source` is
    tool, filesystem or git. Line counts (None for binary files) and `mode` are known by git only.
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
        """A JSON object; bytes of a name that are not UTF-8 are escaped."""
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


class CallStart(NamedTuple):
    """A call's tool, and the number of changes before it."""

    tool: str
    order: int


class ChangeKey(NamedTuple):
    """One entry per file and call."""

    path: str
    call: str | None


class ChangeTracker:
    """Collects events and observed changes in the order of their arrival."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._open_calls: set[str] = set()
        self._writers: RunningWriters[ev.ToolCall] = RunningWriters()
        self._call_starts: dict[str, CallStart] = {}
        self._last_finished_call: tuple[str, datetime | None] | None = None
        self._reported_at: dict[str, datetime | None] = {}  # by tools, per path
        self._changes: dict[ChangeKey, Change] = {}
        self._observed: dict[str, dict[ChangeKey, None]] = {}  # by path: not reported by a tool
        self._order: dict[ChangeKey, int] = {}
        self._next_order = 0

    def add(self, event: ev.Event, now: datetime | None = None) -> None:
        """Add an event; `now` replaces a missing time."""
        at = event.at or now
        if isinstance(event, ev.Started):
            self.root = self.root or event.cwd
        elif isinstance(event, ev.ToolCall):
            self._open_calls.add(event.id)
            self._writers.add(event.id, event)
            self._call_starts[event.id] = CallStart(event.name, self._next_order)
        elif isinstance(event, ev.ToolResult):
            if event.id in self._open_calls:
                self._open_calls.remove(event.id)
                self._writers.discard(event.id)
                self._last_finished_call = (event.id, at)
        elif isinstance(event, ev.FileChanged):
            if event.source == "tool":
                self._add_reported(event, at)
            else:
                self.add_observed(event.path, event.change, at, event.source)

    def add_observed(
        self, path: str, change: str, at: datetime | None, source: str = "filesystem"
    ) -> Change | None:
        """Add a change seen on disk; None if a tool has reported it."""
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
        """Every change, in the order of their first appearance."""
        return [self._changes[key] for key in sorted(self._order, key=self._order.__getitem__)]

    # -- attribution to calls ----------------------------------------------------------------------

    def _responsible_call(self, at: datetime | None) -> str | None:
        """The newest call that can change files, else the one that has just ended."""
        writer = self._writers.newest()
        if writer is not None:
            return writer.id
        if self._last_finished_call is not None and _is_near(self._last_finished_call[1], at):
            return self._last_finished_call[0]
        return None

    def _add_reported(self, event: ev.FileChanged, at: datetime | None) -> None:
        name, _, inside = resolve_path(event.path, self.root)
        self._reported_at[name] = at
        start = self._call_starts.get(event.call or "")
        since = self._next_order if start is None else start.order
        for key in self._observed_since(name, since, at):
            self._remove(key)  # seen on disk while the call ran: the same change
        self._merge(
            Change(
                path=name, change=event.change, source="tool", call=event.call, at=at, inside=inside
            )
        )

    def _observed_since(self, path: str, since: int, at: datetime | None) -> list[ChangeKey]:
        """Changes of the file seen on disk: since then, or without a call shortly before `at`.

        A change without a call may belong to one whose line is read later.
        """
        observed = self._observed.get(path, {})
        keys = list(takewhile(lambda key: self._order[key] >= since, reversed(observed)))
        unattributed = ChangeKey(path, None)
        if unattributed in observed and self._order[unattributed] < since:
            keys += [unattributed] if _is_near(self._changes[unattributed].at, at) else []
        return keys

    # -- merging -----------------------------------------------------------------------------------

    def _merge(self, change: Change) -> Change | None:
        key = ChangeKey(change.path, change.call)
        start = self._call_starts.get(change.call or "")
        change.tool = None if start is None else start.tool
        known = self._changes.get(key)
        if known is None:
            self._changes[key] = change
            self._order[key] = self._next_order
            self._next_order += 1
            if change.source != "tool":
                self._observed.setdefault(change.path, {})[key] = None
            return change
        combined = _combine(known.change, change.change)
        if combined is None:
            self._remove(key)
            return None
        source = "tool" if "tool" in (known.source, change.source) else known.source
        self._changes[key] = replace(known, change=combined, source=source)
        if source == "tool":
            self._observed.get(key.path, {}).pop(key, None)
        return self._changes[key]

    def _remove(self, key: ChangeKey) -> None:
        del self._changes[key], self._order[key]
        self._observed.get(key.path, {}).pop(key, None)


def merge_git_changes(known: list[Change], git_changes: list[Change]) -> list[Change]:
    """The known changes, completed with git's: line counts, renames, and what was not reported."""
    last = {change.path: change for change in known}
    replaced: dict[int, Change | None] = {}  # by the id of a known change: the rename, or nothing
    added = []
    for entry in git_changes:
        change = last.get(entry.path)
        old = None if entry.was is None else last.get(entry.was)
        reported = change or old
        if reported is None:
            added.append(entry)
        elif entry.was is not None:  # one entry for the new and the old name
            rename = _with_call(entry, reported)
            if id(reported) in replaced:
                added.append(rename)
            else:
                replaced[id(reported)] = rename
            if old is not None and old is not reported:
                replaced[id(old)] = None
        else:
            reported.binary = entry.binary
            reported.added = entry.added
            reported.removed = entry.removed
            reported.mode = entry.mode
    merged = (replaced.get(id(change), change) for change in known)
    return [*(change for change in merged if change is not None), *added]


def _with_call(change: Change, known: Change) -> Change:
    return replace(change, call=known.call, tool=known.tool, at=known.at, source=known.source)


def _is_near(before: datetime | None, after: datetime | None) -> bool:
    if before is None or after is None:
        return False
    return abs(_with_timezone(after) - _with_timezone(before)) <= ATTRIBUTION_WINDOW


def _with_timezone(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


def _combine(first: str, then: str) -> str | None:
    """The net effect of two changes by one call; None if they cancel out."""
    if first == "created":
        return None if then == "deleted" else "created"
    if first == "deleted" and then == "created":
        return "modified"
    return then
