"""Which events are meant, and what a command is told of one. Pure: it starts nothing.

    EVENT[:FILTER]      file_change:*.py   tool_call:Bash,Edit   result:success   end

FILTER is a list of patterns with `*` and `?`, apart by commas: one of them must fit what the event is about.
"""

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from .. import event as ev
from ..fold import Fold
from ..paths import placed
from ..report import StenoError

END = "end"  # not an event of the agent's: the stream is over, and judged
KINDS: dict[str, type[ev.Event] | None] = {
    **{str(kind.__struct_config__.tag): kind for kind in ev.Event.__subclasses__()},
    END: None,
}
# What FILTER is compared with, by event. Events that are not here take none.
ABOUT = {
    "started": ("model",),
    "user_message": ("kind",),
    "tool_call": ("tool",),
    "tool_result": ("tool",),
    "permission_denied": ("tool",),
    "file_change": ("path", "relative", "name"),
    "rate_limit": ("status",),
    "retry": ("status", "error"),
    "failure": ("kind", "status"),
    "compaction": ("trigger",),
    "task_started": ("kind",),
    "task_ended": ("status",),
    "hook": ("name",),
    "notice": ("kind",),
    "stderr": ("text",),
    "text": ("text",),
    "stop_requested": ("why",),
    "exited": ("code",),
    "unknown": ("kind",),
    "result": ("verdict",),
    END: ("verdict",),
}
# What may stand in a command, with the meaning that the help gives.
WORDS = {
    "event": "the event's name",
    "session_id": "the agent's conversation",
    "run_id": "the run, where it was recorded by steno",
    "cwd": "the folder that the agent works in",
    "path": "the file, with its whole path",
    "relative": "the file's path below cwd",
    "name": "the file's name, or the hook's",
    "change": "created, modified or deleted",
    "tool": "the tool's name",
    "call": "the call's id",
    "verdict": "how the run ended, as far as it is known",
    "status": "the status of a limit, a retry, a failure or a task",
    "error": "the error that is retried",
    "kind": "the kind of a failure, a task, a notice or a message",
    "text": "the text of an answer or of a line of stderr",
    "model": "the model",
    "code": "the exit code",
    "trigger": "what made it compact its context",
    "why": "why it was asked to end",
    "line": "the line of stdout that tells of it",
}
PLAIN = ("change", "call", "status", "error", "kind", "text", "model", "code", "trigger", "why", "name", "tool")  # as they are
_WORD = re.compile(r"\{(\{[a-z_]+\})\}|\{([a-z_]+)\}")


class Pattern(Struct, frozen=True):
    """The events that are meant. Without filters: all of the kind."""

    kind: str
    filters: tuple[str, ...] = ()

    def fits(self, told: dict[str, str]) -> bool:
        """Whether what is told of an event of this kind fits one of the filters."""
        if not self.filters:
            return True
        about = [told[name] for name in ABOUT[self.kind] if name in told]
        plain = [filter_.replace("[", "[[]") for filter_ in self.filters]  # brackets are themselves, as in pages/[id].tsx
        return any(fnmatchcase(text, filter_) for text in about for filter_ in plain)


def pattern(text: str) -> Pattern:
    """What somebody wrote. StenoError: there is no such event, or it takes no filter."""
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        from difflib import get_close_matches

        near = get_close_matches(kind, KINDS, 3, 0.5)
        meant = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(KINDS)}"
        raise StenoError(f"no event is called {kind!r}{meant}")
    filters = tuple(filter(None, (part.strip() for part in rest.split(","))))
    if colon and not filters:
        raise StenoError(f"{text}: nothing follows the colon")
    if filters and kind not in ABOUT:
        raise StenoError(f"{text}: a {kind} is about nothing that could be filtered")
    return Pattern(kind, filters)


def check(argv: Iterable[str]) -> None:
    """StenoError: a word in braces that nothing can be put in for."""
    for argument in argv:
        for literal, word in _WORD.findall(argument):
            if not literal and word not in WORDS:
                raise StenoError(f"{{{word}}} is not known; there are: {', '.join(WORDS)}; for the word itself: {{{{{word}}}}}")


def wants(argv: Iterable[str], word: str) -> bool:
    """Whether a command wants to be told this."""
    return any(found == word for argument in argv for _, found in _WORD.findall(argument))


def filled(argv: Iterable[str], told: dict[str, str]) -> tuple[str, ...]:
    """The command with everything put in. Each argument stays one argument, whatever is put in; unknown is empty."""

    def put(match: re.Match[str]) -> str:
        return match[1] or told.get(match[2], "").replace("\0", "")

    return tuple(_WORD.sub(put, argument) for argument in argv)


class Teller:
    """What can be said of the events of one run. What is not known is not said."""

    def __init__(self, fold: Fold, run_id: str | None = None, cwd: str | None = None) -> None:
        self._fold, self._run, self._cwd = fold, run_id, cwd

    def told(self, event: ev.Event) -> dict[str, str]:
        """Of one event, which the fold has taken in."""
        found = {**self.whole(str(type(event).__struct_config__.tag)), "line": str(event.line)}
        for name in PLAIN:
            value = getattr(event, name, None)
            if isinstance(value, str | int):
                found[name] = str(value)
        if isinstance(event, ev.ToolCall | ev.ToolResult):
            found["call"] = event.id
        if isinstance(event, ev.ToolCall):
            found["tool"] = event.name
        elif "call" in found and "tool" not in found:
            call = self._fold.calls.get(found["call"])
            found |= {"tool": call.name} if call is not None else {}
        if isinstance(event, ev.FileChanged):
            found |= self._placed(event.path)
        return found

    def whole(self, kind: str) -> dict[str, str]:
        """Of every event, and of the end."""
        about = {"session_id": self._fold.session, "run_id": self._run, "cwd": self._folder}
        return {"event": kind, **{name: value for name, value in about.items() if value is not None}}

    @property
    def _folder(self) -> str | None:
        started = self._fold.started
        return (started.cwd if started is not None else None) or self._cwd

    def _placed(self, path: str) -> dict[str, str]:
        """A file, by names that no program takes for an option."""
        relative, absolute, _ = placed(path, self._folder)
        names = {"path": absolute, "relative": relative, "name": posixpath.basename(absolute)}
        return {key: f"./{name}" if name.startswith("-") else name for key, name in names.items()}
