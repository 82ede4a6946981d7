"""A run as a timeline: one sanitized line per event that matters to a reader."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from .. import event as ev
from ..analysis.live_state import call_target
from ..analysis.usage import nano_to_usd
from ..codec.colours import strip_tag
from ..codec.decode import DECODE_ERRORS, text_of
from .formatting import (
    format_compact,
    format_duration,
    format_money,
    format_number,
    format_percent,
    pad,
    single_line,
    truncate,
    width,
)
from .table import PageStyle

DEFAULT_LINE_COLUMNS = 160  # where no terminal limits a line
KIND_COLUMNS = 9


class TimelineEntry(NamedTuple):
    kind: str
    text: str
    style: str = ""


class Timeline:
    """Formats events. Remembers open calls and what was reported, but no long texts."""

    def __init__(self, style: PageStyle) -> None:
        self.style = style
        self.started_at: datetime | None = None
        self.open_calls: dict[str, tuple[str, datetime | None]] = {}  # call id -> name, start
        self._call_by_task: dict[str, str] = {}  # task id -> call id
        self._descriptions: dict[str, str] = {}  # call or task id -> description
        self._reported: set[tuple[str, str]] = set()  # several events can state the same fact
        self._formatters: dict[type[ev.Event], Callable[[Any], TimelineEntry | None]] = {
            ev.Started: self._started,
            ev.UserMessage: self._user_message,
            ev.LocalCommand: self._local_command,
            ev.Attachment: self._attachment,
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
            ev.Alert: self._alert,
            ev.Exited: self._exited,
            ev.Malformed: self._malformed,
            ev.Unknown: self._unknown,
        }

    def line(self, event: ev.Event) -> str | None:
        """The line of an event; None for events that are not shown."""
        if self.started_at is None:
            self.started_at = event.at
        entry = self.entry(event)
        if entry is None:
            return None
        head = f"{self._elapsed(event.at):>10} {event.line or '':>6}  "
        indent = "  " if event.parent is not None else ""  # inside a subagent
        used = width(head) + len(indent) + KIND_COLUMNS + 1
        text = truncate(
            single_line(entry.text), (self.style.line_limit or DEFAULT_LINE_COLUMNS) - used
        )
        kind = self.style.paint(pad(entry.kind, KIND_COLUMNS), entry.style)
        return f"{self.style.paint(head, 'dim')}{indent}{kind} {text}".rstrip(" ")

    def entry(self, event: ev.Event) -> TimelineEntry | None:
        """Kind, unsanitized text and style; None for events that are not shown."""
        formatter = self._formatters.get(event.__class__)
        return formatter(event) if formatter is not None else None

    def _elapsed(self, at: datetime | None) -> str:
        if at is None or self.started_at is None:
            return ""
        return f"{(at - self.started_at).total_seconds():+.3f}s"

    def _is_repeat(self, fact: str, key: str) -> bool:
        """Whether the fact was reported before; marks it as reported."""
        is_known = (fact, key) in self._reported
        self._reported.add((fact, key))
        return is_known

    # -- conversation ---------------------------------------------------------------------------

    def _started(self, event: ev.Started) -> TimelineEntry | None:
        text = f"{event.model or 'unknown model'} in {event.cwd or 'unknown folder'}"
        return None if self._is_repeat("started", text) else TimelineEntry("started", text, "bold")

    def _user_message(self, event: ev.UserMessage) -> TimelineEntry | None:
        if event.kind == "interrupted":
            return TimelineEntry("interrupt", event.text, "yellow")
        if event.kind == "sent":
            return TimelineEntry("sent", event.text, "cyan")
        return TimelineEntry("prompt", event.text, "cyan") if event.kind == "prompt" else None

    def _local_command(self, event: ev.LocalCommand) -> TimelineEntry | None:
        if event.command is not None:
            return TimelineEntry("command", event.command, "cyan")
        printed = "\n".join(filter(None, (event.output, event.error)))
        return TimelineEntry("output", printed) if printed.strip() else None

    def _attachment(self, event: ev.Attachment) -> TimelineEntry:
        return TimelineEntry("file", text_of(event.content))

    def _text(self, event: ev.Text) -> TimelineEntry:
        return TimelineEntry("text", event.text)

    def _tool_call(self, event: ev.ToolCall) -> TimelineEntry:
        self.open_calls[event.id] = event.name, event.at
        background = " (background)" if event.background else ""
        target = call_target(_decode_or_none(event.input))
        return TimelineEntry("call", f"{event.name}{background}: {target}", "cyan")

    def _tool_result(self, event: ev.ToolResult) -> TimelineEntry | None:
        name, called_at = self.open_calls.pop(event.id, ("unknown call", None))
        if ("denied", event.id) in self._reported:
            return None
        elapsed = ""
        if event.at is not None and called_at is not None:
            elapsed = f", {format_duration((event.at - called_at).total_seconds() * 1000)}"
        if event.is_error:
            error = strip_tag(text_of(event.content))
            return TimelineEntry("failed", f"{name}{elapsed}: {error}", "red")
        return TimelineEntry("ok", f"{name}{elapsed}", "green")

    # -- interruptions and side work ------------------------------------------------------------

    def _retry(self, event: ev.Retry) -> TimelineEntry:
        return TimelineEntry("retry", retry_text(event), "yellow")

    def _rate_limit(self, event: ev.RateLimit) -> TimelineEntry:
        used = (
            f", {format_percent(event.utilization)} used" if event.utilization is not None else ""
        )
        text = f"{event.kind or 'usage'} {event.status or 'unknown'}{used}"
        return TimelineEntry("limit", text, "" if event.status == "allowed" else "yellow")

    def _compaction(self, event: ev.Compaction) -> TimelineEntry:
        sizes = f"{format_number(event.before)} to {format_number(event.after)} tokens"
        return TimelineEntry("compacted", f"{event.trigger or ''} {sizes}", "yellow")

    def _permission_denied(self, event: ev.PermissionDenied) -> TimelineEntry | None:
        if event.call is not None and self._is_repeat("denied", event.call):
            return None
        tool = event.tool or self.open_calls.get(event.call or "", ("unknown tool", None))[0]
        reason = event.reason or call_target(_decode_or_none(event.input))
        return TimelineEntry("denied", f"{tool}: {reason}", "yellow")

    def _task_started(self, event: ev.TaskStarted) -> TimelineEntry | None:
        if event.call is not None:
            self._call_by_task[event.task] = event.call
        if event.description is not None:
            self._descriptions[event.call or event.task] = event.description
        if event.call is not None or self._is_repeat("task", event.task):
            return None  # the line of the call already shows it
        text = f"{event.kind or 'work'} started: {event.description or event.task}"
        return TimelineEntry("task", text, "cyan")

    def _task_ended(self, event: ev.TaskEnded) -> TimelineEntry | None:
        key = event.call or self._call_by_task.get(event.task, event.task)
        if self._is_repeat("task end", key):
            return None
        description = self._descriptions.get(key) or event.summary or event.task
        return TimelineEntry("task", f"{event.status or 'ended'}: {description}")

    def _file_changed(self, event: ev.FileChanged) -> TimelineEntry:
        return TimelineEntry("file", f"{event.change}: {event.path}")

    def _failure(self, event: ev.Failure) -> TimelineEntry:
        parts = (event.status, event.kind, event.text)
        return TimelineEntry("failure", _join_known(parts), "red")

    # -- end of the run -------------------------------------------------------------------------

    def _run_result(self, event: ev.Result) -> TimelineEntry:
        cost = format_money(nano_to_usd(event.cost_nano))
        facts = (
            event.subtype or "unknown",
            f"turns {format_number(event.turns)}",
            format_duration(event.duration_ms),
            "cost unknown" if event.cost_nano is None else cost,
        )
        is_failure = event.is_error or event.subtype != "success"
        message = "; ".join(event.errors)
        if is_failure and not message:
            message = event.text or ""
        text = ", ".join(facts) + (f": {message}" if message else "")
        return TimelineEntry("result", text, "bold red" if is_failure else "bold green")

    def _stderr(self, event: ev.Stderr) -> TimelineEntry:
        return TimelineEntry("stderr", event.text, "yellow")

    def _stop_requested(self, event: ev.StopRequested) -> TimelineEntry:
        return TimelineEntry("stop", event.why, "yellow")

    def _alert(self, event: ev.Alert) -> TimelineEntry | None:
        return None if event.is_passed else TimelineEntry("alert", alert_text(event), "yellow")

    def _exited(self, event: ev.Exited) -> TimelineEntry:
        text = "not started" if event.code is None else f"code {event.code}"
        return TimelineEntry("exit", text, "red" if event.code else "")

    def _malformed(self, event: ev.Malformed) -> TimelineEntry:
        return TimelineEntry("truncated" if event.torn else "malformed", event.head, "yellow")

    def _unknown(self, event: ev.Unknown) -> TimelineEntry:
        return TimelineEntry("unknown", event.kind, "dim")


def retry_text(event: ev.Retry) -> str:
    """Attempt, reason and delay of a retried request."""
    attempts = f"{event.attempt or '?'} of {event.limit or '?'}"
    reason = _join_known((event.status, event.error))
    return f"{attempts}: {reason}, waiting {format_duration(event.delay_ms)}"


def alert_text(event: ev.Alert) -> str:
    """What has reached a level: context 82% full (164k of 200k tokens; alert at 80%)."""
    share = f"{event.used / event.limit:.0%}" if event.limit else "100%"
    if event.kind == "cost":
        amounts = f"{format_money(event.used)} of {format_money(event.limit)}"
    else:
        amounts = f"{format_compact(int(event.used))} of {format_compact(int(event.limit))} tokens"
    level = f"alert at {event.level * 100:g}%"
    if event.kind != "context":
        return f"{event.kind.removesuffix('s')} budget {share} used ({amounts}; {level})"
    assumed = ", window assumed" if event.is_assumed else ""
    return f"context {share} full ({amounts}{assumed}; {level})"


def _join_known(parts: tuple[object, ...]) -> str:
    return " ".join(str(part) for part in parts if part is not None)


def _decode_or_none(data: Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        return None
