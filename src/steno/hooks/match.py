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
from ..fold import Accumulator
from ..paths import resolve_path
from ..report import StenoError

END_EVENT = "end"  # not an event of the agent's: the stream is over, and judged
EVENT_KINDS: dict[str, type[ev.Event] | None] = {
    **{str(kind.__struct_config__.tag): kind for kind in ev.Event.__subclasses__()},
    END_EVENT: None,
}
# What FILTER is compared with, by event. Events that are not here take none.
FILTER_FIELDS = {
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
    END_EVENT: ("verdict",),
}
# What may stand in a command, with the meaning that the help gives.
PLACEHOLDERS = {
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
COPIED_FIELDS = ("change", "call", "status", "error", "kind", "text", "model", "code", "trigger", "why", "name", "tool")  # as they are
_PLACEHOLDER_PATTERN = re.compile(r"\{(\{[a-z_]+\})\}|\{([a-z_]+)\}")


class EventFilter(Struct, frozen=True):
    """The events that are meant. Without filters: all of the kind."""

    kind: str
    patterns: tuple[str, ...] = ()

    def matches(self, told: dict[str, str]) -> bool:
        """Whether what is told of an event of this kind fits one of the filters."""
        if not self.patterns:
            return True
        about = [told[name] for name in FILTER_FIELDS[self.kind] if name in told]
        plain = [filter_.replace("[", "[[]") for filter_ in self.patterns]  # brackets are themselves, as in pages/[id].tsx
        return any(fnmatchcase(text, filter_) for text in about for filter_ in plain)


def parse_event_filter(text: str) -> EventFilter:
    """What somebody wrote. StenoError: there is no such event, or it takes no filter."""
    kind, colon, rest = text.partition(":")
    if kind not in EVENT_KINDS:
        from difflib import get_close_matches

        near = get_close_matches(kind, EVENT_KINDS, 3, 0.5)
        meant = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(EVENT_KINDS)}"
        raise StenoError(f"no event is called {kind!r}{meant}")
    filters = tuple(filter(None, (part.strip() for part in rest.split(","))))
    if colon and not filters:
        raise StenoError(f"{text}: nothing follows the colon")
    if filters and kind not in FILTER_FIELDS:
        raise StenoError(f"{text}: a {kind} is about nothing that could be filtered")
    return EventFilter(kind, filters)


def check_placeholders(argv: Iterable[str]) -> None:
    """StenoError: a word in braces that nothing can be put in for."""
    for argument in argv:
        for literal, word in _PLACEHOLDER_PATTERN.findall(argument):
            if not literal and word not in PLACEHOLDERS:
                raise StenoError(f"{{{word}}} is not known; there are: {', '.join(PLACEHOLDERS)}; for the word itself: {{{{{word}}}}}")


def uses_placeholder(argv: Iterable[str], word: str) -> bool:
    """Whether a command wants to be told this."""
    return any(found == word for argument in argv for _, found in _PLACEHOLDER_PATTERN.findall(argument))


def fill_placeholders(argv: Iterable[str], told: dict[str, str]) -> tuple[str, ...]:
    """The command with everything put in. Each argument stays one argument, whatever is put in; unknown is empty."""

    def put(match: re.Match[str]) -> str:
        return match[1] or told.get(match[2], "").replace("\0", "")

    return tuple(_PLACEHOLDER_PATTERN.sub(put, argument) for argument in argv)


class PlaceholderValues:
    """What can be said of the events of one run. What is not known is not said."""

    def __init__(self, fold: Accumulator, run_id: str | None = None, cwd: str | None = None) -> None:
        self._accumulator, self._run_id, self._fallback_cwd = fold, run_id, cwd

    def for_event(self, event: ev.Event) -> dict[str, str]:
        """Of one event, which the fold has taken in."""
        found = {**self.for_run(str(type(event).__struct_config__.tag)), "line": str(event.line)}
        for name in COPIED_FIELDS:
            value = getattr(event, name, None)
            if isinstance(value, str | int):
                found[name] = str(value)
        if isinstance(event, ev.ToolCall | ev.ToolResult):
            found["call"] = event.id
        if isinstance(event, ev.ToolCall):
            found["tool"] = event.name
        elif "call" in found and "tool" not in found:
            call = self._accumulator.calls.get(found["call"])
            found |= {"tool": call.name} if call is not None else {}
        if isinstance(event, ev.FileChanged):
            found |= self._file_values(event.path)
        return found

    def for_run(self, kind: str) -> dict[str, str]:
        """Of every event, and of the end."""
        about = {"session_id": self._accumulator.session, "run_id": self._run_id, "cwd": self._agent_cwd}
        return {"event": kind, **{name: value for name, value in about.items() if value is not None}}

    @property
    def _agent_cwd(self) -> str | None:
        started = self._accumulator.started
        return (started.cwd if started is not None else None) or self._fallback_cwd

    def _file_values(self, path: str) -> dict[str, str]:
        """A file, by names that no program takes for an option."""
        relative, absolute, _ = resolve_path(path, self._agent_cwd)
        names = {"path": absolute, "relative": relative, "name": posixpath.basename(absolute)}
        return {key: f"./{name}" if name.startswith("-") else name for key, name in names.items()}
