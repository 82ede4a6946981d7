"""A patch made of what tools told: the text of a file before the first edit, and after the last one. Pure.

It knows what Write and Edit say of themselves. Other changes, and files of which the agent told no content, are not in
it, and are named. Where there is a repository, `git` makes a better one.
"""

from collections.abc import Iterable
from difflib import unified_diff

from msgspec import Struct

from .. import event as ev
from ..decode import MISFIT, lenient, text_of
from ..paths import placed

NO_END = "\\ No newline at end of file\n"


class Asked(Struct):
    """Of an edit's input, what it puts in place of what."""

    old_string: str | None = None
    new_string: str | None = None
    replace_all: bool | None = None
    edits: list["Asked"] | None = None


class Hunk(Struct, rename="camel"):
    """One part of a structured patch."""

    old_start: int = 1
    lines: list[str] = []


class Story(Struct):
    """A file: its text before the first change (None: it was not there) and after the last. `known`: both are told."""

    before: str | None
    after: str
    known: bool = True


class Stories:
    """Takes in the events of a run."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._asked: dict[str, ev.ToolCall] = {}
        self._told: dict[str, ev.Outcome] = {}
        self.files: dict[str, Story] = {}

    def add(self, event: ev.Event) -> None:
        """Take in an event."""
        if isinstance(event, ev.Started):
            self.root = self.root or event.cwd
        elif isinstance(event, ev.ToolCall) and event.kind in ("file_write", "file_edit", "notebook"):
            self._asked[event.id] = event
        elif isinstance(event, ev.ToolResult) and event.id in self._asked and isinstance(event.output, ev.Outcome):
            self._told[event.id] = event.output
        elif isinstance(event, ev.FileChanged):
            self._changed(event)

    def _changed(self, event: ev.FileChanged) -> None:
        path, _, inside = placed(event.path, self.root)
        if not inside:
            return
        call, told = self._asked.pop(event.call or "", None), self._told.pop(event.call or "", None)
        before, after = _texts(call, told) if told is not None else (None, None)
        known = self.files.get(path)
        if after is None or (before is None and event.change != "created"):
            self.files[path] = Story(known.before if known is not None else None, "", False)
        elif known is None:
            self.files[path] = Story(before, after)
        elif known.known:
            known.after = after

    def unknown(self) -> list[str]:
        """The files whose content was not told."""
        return [path for path, story in self.files.items() if not story.known]

    def patch(self, inner: str = "") -> bytes:
        """The patch, in git's form. `inner` is put before every name: where the folder lies in a repository."""
        parts = [one(inner + path, story.before, story.after) for path, story in sorted(self.files.items()) if story.known]
        return "".join(parts).encode("utf-8", "surrogateescape")


def made(events: Iterable[ev.Event], root: str | None = None) -> Stories:
    """What the events of a run tell."""
    stories = Stories(root)
    for event in events:
        stories.add(event)
    return stories


def _texts(call: ev.ToolCall | None, told: ev.Outcome) -> tuple[str | None, str | None]:
    """The text before and after one change, as far as they are told."""
    before = None if bytes(told.original_file) == b"null" else text_of(told.original_file)
    if bytes(told.content) != b"null":
        return before, text_of(told.content)
    if before is None or call is None:
        return before, None
    asked = lenient(call.input, Asked)
    after = edited(before, asked.edits if asked.edits is not None else [asked])
    return before, after if after is not None else _patched(before, told)


def edited(text: str, edits: list[Asked]) -> str | None:
    """The text with each edit done; None where one does not fit."""
    for edit in edits:
        if edit.old_string is None or edit.new_string is None or (edit.old_string not in text and edit.old_string):
            return None
        text = text.replace(edit.old_string, edit.new_string, -1 if edit.replace_all else 1)
    return text


def _patched(text: str, told: ev.Outcome) -> str | None:
    """The text with a structured patch done to it; None where that does not fit (leading tabs may be shown as blanks)."""
    try:
        hunks = lenient(told.structured_patch, list[Hunk])
    except MISFIT:
        return None
    old, new, at = text.split("\n"), list[str](), 0
    for hunk in hunks:
        before = [line[1:] for line in hunk.lines if line[:1] in (" ", "-")]
        start = hunk.old_start - 1
        if start < at or old[start : start + len(before)] != before:
            return None
        new += old[at:start] + [line[1:] for line in hunk.lines if line[:1] in (" ", "+")]
        at = start + len(before)
    return "\n".join(new + old[at:]) if hunks else None


# -- the form --------------------------------------------------------------------------------------------------------


def one(path: str, before: str | None, after: str) -> str:
    """The patch of one file; empty where nothing is different."""
    if before == after:
        return ""
    old, new = quoted(f"a/{path}"), quoted(f"b/{path}")
    head = f"diff --git {old} {new}\n" + ("new file mode 100644\n" if before is None else "")
    lines = list(unified_diff(_lines(before or ""), _lines(after), "/dev/null" if before is None else old, new, lineterm="\n"))
    if lines:
        end = "\t\n" if " " in path else "\n"  # git's own sign that the name ends here
        lines[:2] = [f"--- {'/dev/null' if before is None else old}{end}", f"+++ {new}{end}"]
    return head + "".join(line if line.endswith("\n") else f"{line}\n{NO_END}" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines end at newlines and nowhere else."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def quoted(name: str) -> str:
    """A name as git writes it: plain, or in quotes where it holds quotes, backslashes or control characters."""
    if not any(letter in '"\\' or ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return name
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    return (
        '"' + "".join(short.get(one) or (f"\\{ord(one):03o}" if ord(one) < 32 or ord(one) == 127 else one) for one in name) + '"'
    )
