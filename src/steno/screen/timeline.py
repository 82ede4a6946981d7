"""A run as a timeline: one line for each event that matters to people. All text is cleaned here; it never prints."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from .. import event as ev
from ..decode import MISFIT, text_of
from .clean import cut, flat, pad, width
from .look import Look
from .words import money, number, percent, span, target, untagged

RUN_ON = 160  # columns of a line that no terminal limits
NANO = 1_000_000_000
Told = tuple[str, str, str]  # the kind, what there is to say, the style


class Timeline:
    """Turns events into lines. It remembers which calls are open and what was said already, never a long text."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.start: datetime | None = None
        self.open: dict[str, tuple[str, datetime | None]] = {}
        self._calls: dict[str, str] = {}  # task id -> call id
        self._names: dict[str, str] = {}  # call or task id -> description
        self._told: set[tuple[str, str]] = set()  # what several events tell is said once
        self._tell: dict[type[ev.Event], Callable[[Any], Told | None]] = {
            ev.Started: self._started,
            ev.UserMessage: self._user,
            ev.Text: self._text,
            ev.ToolCall: self._call,
            ev.ToolResult: self._result,
            ev.Retry: self._retry,
            ev.RateLimit: self._limit,
            ev.Compaction: self._compaction,
            ev.PermissionDenied: self._denied,
            ev.TaskStarted: self._task,
            ev.TaskEnded: self._task_end,
            ev.Failure: self._failure,
            ev.Result: self._end,
            ev.FileChanged: self._file,
            ev.Stderr: self._stderr,
            ev.StopRequested: self._stop,
            ev.Exited: self._exit,
            ev.Malformed: self._malformed,
            ev.Unknown: self._unknown,
        }

    def line(self, event: ev.Event) -> str | None:
        """The line of one event; None if it does not matter to people."""
        if self.start is None:
            self.start = event.at
        told = self.told(event)
        if told is None:
            return None
        kind, text, style = told
        head = f"{self._after(event.at):>10} {event.line or '':>6}  "
        indent = "  " if event.parent is not None else ""  # a subagent's own
        body = flat(text)
        room = (self.look.limit or RUN_ON) - width(head) - 10 - len(indent)
        return (self.look.paint(head, "dim") + indent + self.look.paint(pad(kind, 9), style) + " " + cut(body, room)).rstrip(" ")

    def told(self, event: ev.Event) -> Told | None:
        """What there is to say of one event, not yet cleaned; None if it does not matter to people."""
        tell = self._tell.get(event.__class__)
        return tell(event) if tell is not None else None

    def _after(self, at: datetime | None) -> str:
        if at is None or self.start is None:
            return ""
        return f"{(at - self.start).total_seconds():+.3f}s"

    # -- the conversation ---------------------------------------------------------------------------------------

    def _again(self, what: str, which: str) -> bool:
        """Whether this was said already; from now on it was."""
        told = (what, which) in self._told
        self._told.add((what, which))
        return told

    def _started(self, event: ev.Started) -> Told | None:
        text = f"{event.model or 'model unknown'} in {event.cwd or 'an unknown folder'}"
        return None if self._again("started", text) else ("started", text, "bold")

    def _user(self, event: ev.UserMessage) -> Told | None:
        if event.kind == "interrupted":
            return "interrupt", event.text, "yellow"
        return ("prompt", event.text, "cyan") if event.kind == "prompt" else None

    def _text(self, event: ev.Text) -> Told:
        return "text", event.text, ""

    def _call(self, event: ev.ToolCall) -> Told:
        self.open[event.id] = event.name, event.at
        background = " in the background" if event.background else ""
        return "call", f"{event.name}{background}: {target(_plain(event.input))}", "cyan"

    def _result(self, event: ev.ToolResult) -> Told | None:
        name, at = self.open.pop(event.id, ("a call that was not seen", None))
        spent = f", {span((event.at - at).total_seconds() * 1000)}" if event.at is not None and at is not None else ""
        if ("refused", event.id) in self._told:
            return None
        if event.is_error:
            return "failed", f"{name}{spent}: {untagged(text_of(event.content))}", "red"
        return "ok", f"{name}{spent}", "green"

    # -- what came between ----------------------------------------------------------------------------------------

    def _retry(self, event: ev.Retry) -> Told:
        reason = " ".join(str(part) for part in (event.status, event.error) if part is not None)
        return "retry", f"{number(event.attempt)} of {number(event.limit)}: {reason}, wait {span(event.delay_ms)}", "yellow"

    def _limit(self, event: ev.RateLimit) -> Told:
        used = f", {percent(event.utilization)} used" if event.utilization is not None else ""
        return (
            "limit",
            f"{event.kind or 'usage'} {event.status or 'unknown'}{used}",
            "" if event.status == "allowed" else "yellow",
        )

    def _compaction(self, event: ev.Compaction) -> Told:
        return "compacted", f"{event.trigger or ''} {number(event.before)} to {number(event.after)} tokens", "yellow"

    def _denied(self, event: ev.PermissionDenied) -> Told | None:
        if event.call is not None and self._again("refused", event.call):
            return None
        tool = event.tool or self.open.get(event.call or "", ("a tool", None))[0]
        return "refused", f"{tool}: {event.reason or target(_plain(event.input))}", "yellow"

    def _task(self, event: ev.TaskStarted) -> Told | None:
        if event.call is not None:
            self._calls[event.task] = event.call
        if event.description is not None:
            self._names[event.call or event.task] = event.description
        if event.call is not None or self._again("task", event.task):
            return None  # the line of its call says it
        return "task", f"{event.kind or 'work'} started: {event.description or event.task}", "cyan"

    def _task_end(self, event: ev.TaskEnded) -> Told | None:
        key = event.call or self._calls.get(event.task, event.task)
        if self._again("task end", key):
            return None
        return "task", f"{event.status or 'ended'}: {self._names.get(key) or event.summary or event.task}", ""

    def _file(self, event: ev.FileChanged) -> Told:
        return "file", f"{event.change}: {event.path}", ""

    def _failure(self, event: ev.Failure) -> Told:
        return "failure", " ".join(str(part) for part in (event.status, event.kind, event.text) if part is not None), "red"

    # -- the end --------------------------------------------------------------------------------------------------

    def _end(self, event: ev.Result) -> Told:
        cost = money(event.cost_nano / NANO) if event.cost_nano is not None else "cost unknown"
        words = [event.subtype or "unknown", f"turns {number(event.turns)}", span(event.duration_ms), cost]
        bad = event.is_error or event.subtype != "success"
        said = "; ".join(event.errors) or (event.text or "" if bad else "")
        return "result", ", ".join(words) + (f": {said}" if said else ""), "bold red" if bad else "bold green"

    def _stderr(self, event: ev.Stderr) -> Told:
        return "stderr", event.text, "yellow"

    def _stop(self, event: ev.StopRequested) -> Told:
        return "stop", event.why, "yellow"

    def _exit(self, event: ev.Exited) -> Told:
        return "exit", "never started" if event.code is None else f"code {event.code}", "red" if event.code else ""

    def _malformed(self, event: ev.Malformed) -> Told:
        return "cut" if event.torn else "malformed", event.head, "yellow"

    def _unknown(self, event: ev.Unknown) -> Told:
        return "unknown", event.kind, "dim"


def _plain(data: Raw) -> Any:
    """A piece of JSON as plain values; None where it is none."""
    try:
        return msgspec.json.decode(data)
    except MISFIT:
        return None
