"""A patch built from tool results: each file before the first edit and after the last. Pure.

Only Write and Edit report content. Other files are listed by `files_without_content`. In a
repository, git makes a better patch.
"""

from collections.abc import Iterable
from difflib import unified_diff

from msgspec import Struct

from .. import event as ev
from ..codec.decode import DECODE_ERRORS, decode_lenient, text_of
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
