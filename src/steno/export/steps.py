"""The steps of a conversation, built from the events of a run."""

import tempfile
import weakref
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import event as ev
from ..analysis.live_state import call_target
from ..analysis.usage import merge_usage
from ..codec.attachments import EmbeddedFile, find_attachments
from ..codec.colours import strip_colours
from ..codec.decode import decode_raw, text_of
from ..report import Tokens
from ..views.timeline import alert_text, retry_text
from ..workspace.changes import call_patch

MAX_MEMORY_BYTES = 4 << 20  # of the steps of one conversation; above, they are in a file
REQUEST_KINDS = ("thinking", "text", "tool", "prompt")  # steps that belong to a request
# Kinds of user messages that are no prompts.
STEP_KINDS = {
    "synthetic": "message",
    "summary": "message",
    "interrupted": "interrupt",
    "sent": "sent",
}
MAX_SUMMARY_CHARS = 300  # of a call's input on one line


class StepRequest(Struct, frozen=True):
    """The request that a step belongs to: tokens, cost by the price table, context after it.

    `is_lower_bound`: the agent does not print the final count of output tokens.
    """

    model: str | None = None
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    context: int | None = None
    is_lower_bound: bool = False


class StepFile(Struct, frozen=True):
    """A file that a call changed."""

    path: str
    change: str


class StepImage(Struct, frozen=True):
    """An image in base64."""

    media_type: str
    data: str


class ToolUse(Struct, frozen=True):
    """A tool call with its result.

    `status`: ok, failed, denied, or None without a result. `exit_code` is that of a command, if the
    agent reports it. `patch` is what the call changed in a file, if the agent reports the content.
    `reason` and `allow_rule` are those of a denied call.
    """

    id: str
    name: str
    kind: str
    input: Any = None
    summary: str = ""
    output: str = ""
    status: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    background: bool = False
    patch: str = ""
    files: tuple[StepFile, ...] = ()
    reason: str | None = None
    allow_rule: str | None = None


class Step(Struct, frozen=True):
    """One step, in the order of reading: the steps of a subagent follow the call that started it.

    `kind`: prompt, sent, message (written by the agent for the model), command (that the agent's
    program ran itself, with what it printed), thinking, text, attachment (a file in a message),
    tool, denied, compaction, retry, rate_limit, failure, notice, task, hook, stderr, interrupt,
    stop, alert, result, exit (unless 0), malformed or unknown. `line` is that of stdout (0: another
    one), `at` is in milliseconds since 1970, `parent` the call that started the subagent, `depth`
    how deep subagents are nested. `request` is set on the first step of each request to the model.
    `images` are those in an attachment or in the output of a call.
    """

    number: int
    kind: str
    line: int = 0
    at: int | None = None
    depth: int = 0
    parent: str | None = None
    text: str = ""
    tool: ToolUse | None = None
    request: StepRequest | None = None
    images: tuple[StepImage, ...] = ()


class _StoredStep(Struct, array_like=True):
    """A step as stored: before redaction, the input of a call as JSON text."""

    kind: str
    line: int
    at: int | None
    parent: str | None
    text: str = ""
    tool: ToolUse | None = None
    images: tuple[StepImage, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StoredStep).decode


class StepStore:
    """Steps in a temporary file that has no name; a step can be replaced."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115  # kept open
        weakref.finalize(self, self._file.close)
        self._spans: list[tuple[int, int]] = []  # offset and length by index
        self._end = 0

    def __len__(self) -> int:
        return len(self._spans)

    def append(self, step: _StoredStep) -> int:
        """Store a step and return its index."""
        self._spans.append((0, 0))
        self.put(len(self._spans) - 1, step)
        return len(self._spans) - 1

    def put(self, index: int, step: _StoredStep) -> None:
        data = _encode(step)
        self._file.seek(self._end)
        self._file.write(data)
        self._spans[index] = (self._end, len(data))
        self._end += len(data)

    def get(self, index: int) -> _StoredStep:
        offset, length = self._spans[index]
        self._file.seek(offset)
        return _decode(self._file.read(length))

    def sizes(self) -> list[int]:
        return [length for _, length in self._spans]

    def close(self) -> None:
        self._file.close()


class StepBuilder:
    """Turns the events of a run into steps, in the order in which they arrive."""

    def __init__(self) -> None:
        self.steps = StepStore()
        self.parents: list[str | None] = []  # of each step, by index
        self.index_by_call: dict[str, int] = {}
        self.lines: dict[int, int] = {}  # line of stdout -> index of its step
        self.requests: dict[str, ev.Usage] = {}
        self.request_indexes: dict[str, int] = {}  # request -> its first step
        self.first_prompt: str | None = None
        self.last_result: int | None = None  # index of its step
        self.late_steps: list[int] = []  # work that was reported after the result
        self._open_calls: dict[str, ev.ToolCall] = {}
        self._last_index: dict[str | None, int] = {}  # of each thread, by parent
        self._late_requests: dict[str, int] = {}  # reported after the steps they made
        self._partial: list[str] = []  # an answer that is not finished
        self._stderr: list[ev.Stderr] = []
        self._tasks: dict[str, str] = {}  # task or call -> description
        self._ended_tasks: set[str] = set()
        self._task_calls: dict[str, str] = {}  # task -> its call
        self._background_calls: set[str] = set()
        self._text_hashes: set[int] = set()
        self._denied: set[str] = set()
        self._local_command: int | None = None  # index of the last one, until its output

    def add(self, events: Iterable[ev.Event]) -> None:
        """Add the steps of the events."""
        for event in events:
            if type(event) is ev.Stderr:
                self._stderr.append(event)
                continue
            if self._stderr:
                self._flush_stderr()
            method = _EVENT_METHODS.get(type(event))
            if method is not None:
                method(self, event)

    def finish(self) -> None:
        """Add what was held back until the end."""
        self._flush_stderr()
        if self._partial:
            event = ev.Text(0, None, None, None)
            self._append(event, "text", "".join(self._partial))
            self._partial.clear()
        for key, index in self._late_requests.items():
            self.request_indexes.setdefault(key, index)

    def _append(
        self, event: ev.Event, kind: str, text: str = "", tool: ToolUse | None = None
    ) -> int:
        at = _to_ms(event.at)
        stored = _StoredStep(kind, event.line, at, event.parent, text, tool)
        index = self.steps.append(stored)
        self.parents.append(event.parent)
        if kind in REQUEST_KINDS:
            self._last_index[event.parent] = index
            if not event.line and self.last_result is not None:
                self.late_steps.append(index)  # known from the transcript only
        if event.line:
            self.lines.setdefault(event.line, index)
        return index

    def _claim_request(self, message: str | None, event: ev.Event, index: int) -> None:
        key = message or f"line {event.line}"
        self.request_indexes.setdefault(key, index)

    def _flush_stderr(self) -> None:
        if self._stderr:
            text = strip_colours("\n".join(event.text for event in self._stderr))
            self._append(self._stderr[0], "stderr", text)
            self._stderr.clear()

    # -- conversation ---------------------------------------------------------------------------

    def _on_user(self, event: ev.UserMessage) -> None:
        kind = STEP_KINDS.get(event.kind, "prompt")
        if kind == "prompt" and event.parent is None and self.first_prompt is None:
            self.first_prompt = event.text
        self._append(event, kind, event.text)

    def _on_local_command(self, event: ev.LocalCommand) -> None:
        if event.command is None:
            self._add_command_output(event)
            return
        stored = None if self._local_command is None else self.steps.get(self._local_command)
        if stored is None or stored.text != event.command:  # else repeated
            self._local_command = self._append(event, "command", event.command)

    def _add_command_output(self, event: ev.LocalCommand) -> None:
        """Show what a command printed with the command."""
        printed = strip_colours("\n".join(filter(str.strip, (event.output, event.error))))
        index = self._local_command
        self._local_command = None
        if not printed:
            return
        if index is None:
            self._append(event, "command", printed)
            return
        stored = self.steps.get(index)
        stored.text = f"{stored.text}\n{printed}"
        self.steps.put(index, stored)
        if event.line:
            self.lines.setdefault(event.line, index)

    def _on_text(self, event: ev.Text) -> None:
        self._partial.clear()
        self._text_hashes.add(hash(event.text.strip()))
        index = self._append(event, "text", event.text)
        self._claim_request(event.message, event, index)

    def _on_partial(self, event: ev.Partial) -> None:
        if event.parent is None:
            self._partial.append(event.text)

    def _on_thinking(self, event: ev.Thinking) -> None:
        index = self._append(event, "thinking", event.text)
        self._claim_request(event.message, event, index)

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        if event.id in self.index_by_call:
            return  # repeated
        index = self._append(event, "tool", tool=_tool_use(event))
        self.index_by_call[event.id] = index
        self._open_calls[event.id] = event
        if event.background:
            self._background_calls.add(event.id)
        self._claim_request(event.message, event, index)

    def _on_attachment(self, event: ev.Attachment) -> None:
        index = self._append(event, "attachment", text_of(event.content))
        self._add_images(index, _images(event.content))

    def _add_images(self, index: int, images: tuple[StepImage, ...]) -> None:
        if images:
            stored = self.steps.get(index)
            stored.images = images
            self.steps.put(index, stored)

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        if event.id not in self.index_by_call:  # the call is missing, such as in a part of a file
            head = (event.line, event.session, event.parent, event.at)
            self._on_tool_call(ev.ToolCall(*head, event.id, "unknown call"))
        call = self._open_calls.pop(event.id, None)
        if call is None:
            return  # repeated
        index = self.index_by_call[event.id]
        if event.line:
            self.lines.setdefault(event.line, index)
        stored = self.steps.get(index)
        details = event.output if isinstance(event.output, ev.ToolResultDetails) else None
        if details is not None and (details.is_async or details.background_task_id):
            self._background_calls.add(event.id)
        stored.tool = replace(
            _tool_use(call),
            output=_output_text(event, details),
            status="failed" if event.is_error else "ok",
            exit_code=None if details is None else details.exit_code,
            duration_ms=event.duration_ms or _duration_ms(call.at, event.at),
            patch="" if event.is_error else call_patch(call, details),
        )
        self.steps.put(index, stored)
        self._add_images(index, _images(event.content, event.output))

    def _on_usage(self, event: ev.Usage) -> None:
        key = event.message or f"line {event.line}"
        known = self.requests.get(key)
        self.requests[key] = event if known is None else merge_usage(known, event)
        if event.parent in self._last_index:
            self._late_requests.setdefault(key, self._last_index[event.parent])

    # -- interruptions and side work ------------------------------------------------------------

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        if event.call in self.index_by_call:
            if event.line:
                self.lines.setdefault(event.line, self.index_by_call[event.call or ""])
            return  # shown with the call
        if event.call is not None and event.call in self._denied:
            return
        self._denied.add(event.call or "")
        target = call_target(decode_raw(event.input))
        self._append(event, "denied", _join(event.tool, event.reason or target))

    def _on_compaction(self, event: ev.Compaction) -> None:
        sizes = ""
        if event.before is not None:
            after = "unknown" if event.after is None else f"{event.after:,}"
            sizes = f"{event.before:,} to {after} tokens"
        self._append(event, "compaction", _join(event.trigger, sizes))

    def _on_retry(self, event: ev.Retry) -> None:
        self._append(event, "retry", retry_text(event))

    def _on_rate_limit(self, event: ev.RateLimit) -> None:
        used = f"{event.utilization:.0%} used" if event.utilization is not None else ""
        self._append(event, "rate_limit", _join(event.kind, event.status, used))

    def _on_failure(self, event: ev.Failure) -> None:
        self._append(event, "failure", _join(event.status, event.kind, event.text))

    def _on_notice(self, event: ev.Notice) -> None:
        if event.text:
            is_own = event.kind == "note"  # steno's decision after the run
            self._append(event, "notice", event.text if is_own else f"{event.kind}: {event.text}")

    def _on_task_started(self, event: ev.TaskStarted) -> None:
        if event.description is not None:
            self._tasks[event.task] = event.description
        if event.call is not None:
            self._task_calls[event.task] = event.call
            if event.background:
                self._background_calls.add(event.call)
        if event.call is None:
            self._append(event, "task", f"started: {event.description or event.task}")

    def _on_task_ended(self, event: ev.TaskEnded) -> None:
        call = event.call or self._task_calls.get(event.task)
        is_foreground = call in self.index_by_call and call not in self._background_calls
        if is_foreground or event.task in self._ended_tasks:
            return  # a call in the foreground shows its result itself
        self._ended_tasks.add(event.task)
        about = self._tasks.get(event.task)
        text = about or event.summary or self._describe_call(call) or event.task
        if about and event.summary and "\n" in event.summary:  # with what the task answered
            text = f"{about}\n{event.summary}"
        self._append(event, "task", f"{event.status or 'ended'}: {text}")

    def _describe_call(self, call: str | None) -> str:
        index = self.index_by_call.get(call or "")
        tool = self.steps.get(index).tool if index is not None else None
        if tool is None:
            return ""
        return f"{tool.name} {call_target(decode_raw(msgspec.Raw(tool.input.encode())))}"

    def _on_hook(self, event: ev.Hook) -> None:
        if event.exit_code or event.outcome not in (None, "success"):
            code = f"exit code {event.exit_code}" if event.exit_code is not None else ""
            about = _join(event.name, event.outcome, code)
            output = (event.output or "").rstrip()
            self._append(event, "hook", "\n".join(filter(None, (about, output))))

    def _on_stop(self, event: ev.StopRequested) -> None:
        self._append(event, "stop", event.why)

    def _on_alert(self, event: ev.Alert) -> None:
        if not event.is_passed:
            self._append(event, "alert", alert_text(event))

    # -- end of the run -------------------------------------------------------------------------

    def _on_result(self, event: ev.Result) -> None:
        if event.amends:
            return
        text = "; ".join(event.errors) or event.text or ""
        if hash(text.strip()) in self._text_hashes:
            text = ""  # repeats an answer
        index = self._append(event, "result", "\n".join(filter(None, (event.subtype, text))))
        self.lines[event.line] = index  # the line may also list denied calls
        self.last_result = index

    def _on_exit(self, event: ev.Exited) -> None:
        if event.code is None:
            self._append(event, "exit", "not started")
        elif event.code:
            self._append(event, "exit", f"code {event.code}")

    def _on_malformed(self, event: ev.Malformed) -> None:
        self._append(event, "malformed", event.head)

    def _on_unknown(self, event: ev.Unknown) -> None:
        self._append(event, "unknown", "\n".join(filter(None, (event.kind, _unknown_text(event)))))


_EVENT_METHODS: dict[type[ev.Event], Any] = {
    ev.UserMessage: StepBuilder._on_user,
    ev.LocalCommand: StepBuilder._on_local_command,
    ev.Attachment: StepBuilder._on_attachment,
    ev.Text: StepBuilder._on_text,
    ev.Partial: StepBuilder._on_partial,
    ev.Thinking: StepBuilder._on_thinking,
    ev.ToolCall: StepBuilder._on_tool_call,
    ev.ToolResult: StepBuilder._on_tool_result,
    ev.Usage: StepBuilder._on_usage,
    ev.PermissionDenied: StepBuilder._on_denied,
    ev.Compaction: StepBuilder._on_compaction,
    ev.Retry: StepBuilder._on_retry,
    ev.RateLimit: StepBuilder._on_rate_limit,
    ev.Failure: StepBuilder._on_failure,
    ev.Notice: StepBuilder._on_notice,
    ev.TaskStarted: StepBuilder._on_task_started,
    ev.TaskEnded: StepBuilder._on_task_ended,
    ev.Hook: StepBuilder._on_hook,
    ev.StopRequested: StepBuilder._on_stop,
    ev.Alert: StepBuilder._on_alert,
    ev.Result: StepBuilder._on_result,
    ev.Exited: StepBuilder._on_exit,
    ev.Malformed: StepBuilder._on_malformed,
    ev.Unknown: StepBuilder._on_unknown,
}


def _to_ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


def _duration_ms(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return max(0, int((end - start).total_seconds() * 1000))


def _join(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part not in (None, ""))


def _tool_use(call: ev.ToolCall) -> ToolUse:
    text = bytes(call.input).decode("utf-8", "replace")
    return ToolUse(call.id, call.name, call.kind, text, background=call.background)


def _files(value: ev.ToolResultDetails | msgspec.Raw | None) -> list[EmbeddedFile]:
    """The files in a content or a structured result."""
    raw = value.file if isinstance(value, ev.ToolResultDetails) else value
    if raw is None or raw is ev.NO_JSON:
        return []
    return list(find_attachments(decode_raw(raw)))


def _images(*values: ev.ToolResultDetails | msgspec.Raw | None) -> tuple[StepImage, ...]:
    """The images in a content and a structured result, which may repeat them."""
    found = dict.fromkeys(file for value in values for file in _files(value))
    return tuple(StepImage(file.media_type, file.data) for file in found if file.is_image)


def _unknown_text(event: ev.Unknown) -> str:
    """The line of an unknown kind. Of the field of a result, the name is enough."""
    if event.kind.startswith("result field "):
        return ""
    return text_of(msgspec.Raw(event.raw)) if event.raw else ""


def _output_text(event: ev.ToolResult, details: ev.ToolResultDetails | None) -> str:
    """What the model was shown, or what a command printed, if that is more."""
    shown = text_of(event.content)
    if event.output is not None:
        known = _files(event.content)
        others = (str(file) for file in _files(event.output) if file not in known)
        shown = "\n".join(filter(None, (shown, *others)))
    if details is None:
        return shown
    printed = "\n".join(filter(None, (text_of(details.stdout), text_of(details.stderr))))
    return printed if len(printed) > len(shown) else shown
