"""A patch made of what tools told: the text of a file before the first edit, and after the last one. Pure.

It knows what Write and Edit say of themselves. Other changes, and files of which the agent told no content, are not in
it, and are named. Where there is a repository, `git` makes a better one.
"""

from collections.abc import Iterable
from difflib import unified_diff

from msgspec import Struct

from .. import event as ev
from ..codec.decode import DECODE_ERRORS, decode_lenient, text_of
from ..report import resolve_path

NO_NEWLINE_MARK = "\\ No newline at end of file\n"


class PatchEdit(Struct):
    """Of an edit's input, what it puts in place of what."""

    old_string: str | None = None
    new_string: str | None = None
    replace_all: bool | None = None
    edits: list["PatchEdit"] | None = None


class Hunk(Struct, rename="camel"):
    """One part of a structured patch."""

    old_start: int = 1
    lines: list[str] = []


class FileVersions(Struct):
    """A file: its text before the first change (None: it was not there) and after the last. `known`: both are told."""

    before: str | None
    after: str
    is_known: bool = True


class PatchBuilder:
    """Takes in the events of a run."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self._calls: dict[str, ev.ToolCall] = {}
        self._outcomes: dict[str, ev.ToolResultDetails] = {}
        self.files: dict[str, FileVersions] = {}

    def add(self, event: ev.Event) -> None:
        """Take in an event."""
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
            self._outcomes[event.id] = event.output
        elif isinstance(event, ev.FileChanged):
            self._add_change(event)

    def _add_change(self, event: ev.FileChanged) -> None:
        path, _, inside = resolve_path(event.path, self.root)
        if not inside:
            return
        call, told = (
            self._calls.pop(event.call or "", None),
            self._outcomes.pop(event.call or "", None),
        )
        before, after = _before_and_after(call, told) if told is not None else (None, None)
        known = self.files.get(path)
        if after is None or (before is None and event.change != "created"):
            self.files[path] = FileVersions(known.before if known is not None else None, "", False)
        elif known is None:
            self.files[path] = FileVersions(before, after)
        elif known.is_known:
            known.after = after

    def files_without_content(self) -> list[str]:
        """The files whose content was not told."""
        return [path for path, story in self.files.items() if not story.is_known]

    def build_patch(self, inner: str = "") -> bytes:
        """The patch, in git's form. `inner` is put before every name: where the folder lies in a repository."""
        parts = [
            file_patch(inner + path, story.before, story.after)
            for path, story in sorted(self.files.items())
            if story.is_known
        ]
        return "".join(parts).encode("utf-8", "surrogateescape")


def collect_patch(events: Iterable[ev.Event], root: str | None = None) -> PatchBuilder:
    """What the events of a run tell."""
    stories = PatchBuilder(root)
    for event in events:
        stories.add(event)
    return stories


def _before_and_after(
    call: ev.ToolCall | None, told: ev.ToolResultDetails
) -> tuple[str | None, str | None]:
    """The text before and after one change, as far as they are told."""
    before = None if bytes(told.original_file) == b"null" else text_of(told.original_file)
    if bytes(told.content) != b"null":
        return before, text_of(told.content)
    if before is None or call is None:
        return before, None
    asked = decode_lenient(call.input, PatchEdit)
    after = apply_edits(before, asked.edits if asked.edits is not None else [asked])
    return before, after if after is not None else _apply_hunks(before, told)


def apply_edits(text: str, edits: list[PatchEdit]) -> str | None:
    """The text with each edit done; None where one does not fit."""
    for edit in edits:
        if (
            edit.old_string is None
            or edit.new_string is None
            or (edit.old_string not in text and edit.old_string)
        ):
            return None
        text = text.replace(edit.old_string, edit.new_string, -1 if edit.replace_all else 1)
    return text


def _apply_hunks(text: str, told: ev.ToolResultDetails) -> str | None:
    """The text with a structured patch done to it; None where that does not fit (leading tabs may be shown as blanks)."""
    try:
        hunks = decode_lenient(told.structured_patch, list[Hunk])
    except DECODE_ERRORS:
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


def file_patch(path: str, before: str | None, after: str) -> str:
    """The patch of one file; empty where nothing is different."""
    if before == after:
        return ""
    old, new = quote_path(f"a/{path}"), quote_path(f"b/{path}")
    head = f"diff --git {old} {new}\n" + ("new file mode 100644\n" if before is None else "")
    lines = list(
        unified_diff(
            _split_lines(before or ""),
            _split_lines(after),
            "/dev/null" if before is None else old,
            new,
            lineterm="\n",
        )
    )
    if lines:
        end = "\t\n" if " " in path else "\n"  # git's own sign that the name ends here
        lines[:2] = [f"--- {'/dev/null' if before is None else old}{end}", f"+++ {new}{end}"]
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n{NO_NEWLINE_MARK}" for line in lines
    )


def _split_lines(text: str) -> list[str]:
    """Lines end at newlines and nowhere else."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def quote_path(name: str) -> str:
    """A name as git writes it: plain, or in quotes where it holds quotes, backslashes or control characters."""
    if not any(letter in '"\\' or ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return name
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    return (
        '"'
        + "".join(
            short.get(one) or (f"\\{ord(one):03o}" if ord(one) < 32 or ord(one) == 127 else one)
            for one in name
        )
        + '"'
    )
