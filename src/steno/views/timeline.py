"""A run as a timeline: one line for each event that matters to people. All text is cleaned here; it never prints."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from .. import event as ev
from ..codec.decode import DECODE_ERRORS, text_of
from ..event import NANO_PER_USD
from .formatting import (
    call_target,
    format_duration,
    format_money,
    format_number,
    format_percent,
    strip_tag,
)
from .layout import PageStyle
from .sanitize import pad, single_line, truncate, width

DEFAULT_LINE_COLUMNS = 160  # columns of a line that no terminal limits
TimelineEntry = tuple[str, str, str]  # the kind, what there is to say, the style


class Timeline:
    """Turns events into lines. It remembers which calls are open and what was said already, never a long text."""

    def __init__(self, look: PageStyle) -> None:
        self.style = look
        self.started_at: datetime | None = None
        self.open_calls: dict[str, tuple[str, datetime | None]] = {}
        self._call_by_task: dict[str, str] = {}  # task id -> call id
        self._descriptions: dict[str, str] = {}  # call or task id -> description
        self._reported: set[tuple[str, str]] = set()  # what several events tell is said once
        self._formatters: dict[type[ev.Event], Callable[[Any], TimelineEntry | None]] = {
            ev.Started: self._started,
            ev.UserMessage: self._user_message,
            ev.Text: self._text,
            ev.ToolCall: self._tool_call,
            ev.ToolResult: self._tool_result,
            ev.Retry: self._retry,
            ev.RateLimit: self._rate_limit,
            ev.Compaction: self._compaction,
            ev.PermissionDenied: self._permission_denied,
            ev.TaskStarted: self._task_started,
            ev.TaskEnded: self._task_ended,
            ev.Failure: self._failure,
            ev.Result: self._run_result,
            ev.FileChanged: self._file_changed,
            ev.Stderr: self._stderr,
            ev.StopRequested: self._stop_requested,
            ev.Exited: self._exited,
            ev.Malformed: self._malformed,
            ev.Unknown: self._unknown,
        }

    def line(self, event: ev.Event) -> str | None:
        """The line of one event; None if it does not matter to people."""
        if self.started_at is None:
            self.started_at = event.at
        told = self.entry(event)
        if told is None:
            return None
        kind, text, style = told
        head = f"{self._elapsed(event.at):>10} {event.line or '':>6}  "
        indent = "  " if event.parent is not None else ""  # a subagent's own
        body = single_line(text)
        room = (self.style.line_limit or DEFAULT_LINE_COLUMNS) - width(head) - 10 - len(indent)
        return (
            self.style.paint(head, "dim")
            + indent
            + self.style.paint(pad(kind, 9), style)
            + " "
            + truncate(body, room)
        ).rstrip(" ")

    def entry(self, event: ev.Event) -> TimelineEntry | None:
        """What there is to say of one event, not yet cleaned; None if it does not matter to people."""
        tell = self._formatters.get(event.__class__)
        return tell(event) if tell is not None else None

    def _elapsed(self, at: datetime | None) -> str:
        if at is None or self.started_at is None:
            return ""
        return f"{(at - self.started_at).total_seconds():+.3f}s"

    # -- the conversation ---------------------------------------------------------------------------------------

    def _is_repeat(self, what: str, which: str) -> bool:
        """Whether this was said already; from now on it was."""
        told = (what, which) in self._reported
        self._reported.add((what, which))
        return told

    def _started(self, event: ev.Started) -> TimelineEntry | None:
        text = f"{event.model or 'model unknown'} in {event.cwd or 'an unknown folder'}"
        return None if self._is_repeat("started", text) else ("started", text, "bold")

    def _user_message(self, event: ev.UserMessage) -> TimelineEntry | None:
        if event.kind == "interrupted":
            return "interrupt", event.text, "yellow"
        return ("prompt", event.text, "cyan") if event.kind == "prompt" else None

    def _text(self, event: ev.Text) -> TimelineEntry:
        return "text", event.text, ""

    def _tool_call(self, event: ev.ToolCall) -> TimelineEntry:
        self.open_calls[event.id] = event.name, event.at
        background = " in the background" if event.background else ""
        return (
            "call",
            f"{event.name}{background}: {call_target(_decode_or_none(event.input))}",
            "cyan",
        )

    def _tool_result(self, event: ev.ToolResult) -> TimelineEntry | None:
        name, at = self.open_calls.pop(event.id, ("a call that was not seen", None))
        spent = (
            f", {format_duration((event.at - at).total_seconds() * 1000)}"
            if event.at is not None and at is not None
            else ""
        )
        if ("refused", event.id) in self._reported:
            return None
        if event.is_error:
            return "failed", f"{name}{spent}: {strip_tag(text_of(event.content))}", "red"
        return "ok", f"{name}{spent}", "green"

    # -- what came between ----------------------------------------------------------------------------------------

    def _retry(self, event: ev.Retry) -> TimelineEntry:
        reason = " ".join(str(part) for part in (event.status, event.error) if part is not None)
        return (
            "retry",
            f"{format_number(event.attempt)} of {format_number(event.limit)}: {reason}, wait {format_duration(event.delay_ms)}",
            "yellow",
        )

    def _rate_limit(self, event: ev.RateLimit) -> TimelineEntry:
        used = (
            f", {format_percent(event.utilization)} used" if event.utilization is not None else ""
        )
        return (
            "limit",
            f"{event.kind or 'usage'} {event.status or 'unknown'}{used}",
            "" if event.status == "allowed" else "yellow",
        )

    def _compaction(self, event: ev.Compaction) -> TimelineEntry:
        return (
            "compacted",
            f"{event.trigger or ''} {format_number(event.before)} to {format_number(event.after)} tokens",
            "yellow",
        )

    def _permission_denied(self, event: ev.PermissionDenied) -> TimelineEntry | None:
        if event.call is not None and self._is_repeat("refused", event.call):
            return None
        tool = event.tool or self.open_calls.get(event.call or "", ("a tool", None))[0]
        return (
            "refused",
            f"{tool}: {event.reason or call_target(_decode_or_none(event.input))}",
            "yellow",
        )

    def _task_started(self, event: ev.TaskStarted) -> TimelineEntry | None:
        if event.call is not None:
            self._call_by_task[event.task] = event.call
        if event.description is not None:
            self._descriptions[event.call or event.task] = event.description
        if event.call is not None or self._is_repeat("task", event.task):
            return None  # the line of its call says it
        return "task", f"{event.kind or 'work'} started: {event.description or event.task}", "cyan"

    def _task_ended(self, event: ev.TaskEnded) -> TimelineEntry | None:
        key = event.call or self._call_by_task.get(event.task, event.task)
        if self._is_repeat("task end", key):
            return None
        return (
            "task",
            f"{event.status or 'ended'}: {self._descriptions.get(key) or event.summary or event.task}",
            "",
        )

    def _file_changed(self, event: ev.FileChanged) -> TimelineEntry:
        return "file", f"{event.change}: {event.path}", ""

    def _failure(self, event: ev.Failure) -> TimelineEntry:
        return (
            "failure",
            " ".join(
                str(part) for part in (event.status, event.kind, event.text) if part is not None
            ),
            "red",
        )

    # -- the end --------------------------------------------------------------------------------------------------

    def _run_result(self, event: ev.Result) -> TimelineEntry:
        cost = (
            format_money(event.cost_nano / NANO_PER_USD)
            if event.cost_nano is not None
            else "cost unknown"
        )
        words = [
            event.subtype or "unknown",
            f"turns {format_number(event.turns)}",
            format_duration(event.duration_ms),
            cost,
        ]
        bad = event.is_error or event.subtype != "success"
        said = "; ".join(event.errors) or (event.text or "" if bad else "")
        return (
            "result",
            ", ".join(words) + (f": {said}" if said else ""),
            "bold red" if bad else "bold green",
        )

    def _stderr(self, event: ev.Stderr) -> TimelineEntry:
        return "stderr", event.text, "yellow"

    def _stop_requested(self, event: ev.StopRequested) -> TimelineEntry:
        return "stop", event.why, "yellow"

    def _exited(self, event: ev.Exited) -> TimelineEntry:
        return (
            "exit",
            "never started" if event.code is None else f"code {event.code}",
            "red" if event.code else "",
        )

    def _malformed(self, event: ev.Malformed) -> TimelineEntry:
        return "cut" if event.torn else "malformed", event.head, "yellow"

    def _unknown(self, event: ev.Unknown) -> TimelineEntry:
        return "unknown", event.kind, "dim"


def _decode_or_none(data: Raw) -> Any:
    """A piece of JSON as plain values; None where it is none."""
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        return None
