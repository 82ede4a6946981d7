"""One thing that several lines tell: a request, what an agent works with. What is known of it then. Pure."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from .. import event as ev
from ..codec.decode import decode_raw, text_of
from ..event import OptionalStr, OptionalTime
from ..report import (
    AgentProfile,
    BackgroundTask,
    ChangedFile,
    DeniedCall,
    RateLimitStatus,
    RequestRetry,
    Subagent,
    ToolCallSummary,
    resolve_path,
)
from .verdict import Facts


def merge_usage(known: ev.Usage, told: ev.Usage) -> ev.Usage:
    """One request, told by two lines (M2): a counter only ever grows, and the first line is its place."""
    return msgspec.structs.replace(
        known,
        model=known.model or told.model,
        input=larger_count(known.input, told.input),
        cache_write=larger_count(known.cache_write, told.cache_write),
        cache_read=larger_count(known.cache_read, told.cache_read),
        output=larger_count(known.output, told.output),
        reasoning=larger_count(known.reasoning, told.reasoning),
        cache_write_1h=larger_count(known.cache_write_1h, told.cache_write_1h),
        final=known.final or told.final,
    )


def larger_count(known: int | None, told: int | None) -> int | None:
    if known is None or (told is not None and told > known):
        return told
    return known


def context_tokens(request: ev.Usage) -> int | None:
    """What the window held when a request was sent (M3)."""
    if request.input is None or request.cache_write is None or request.cache_read is None:
        return None
    return request.input + request.cache_write + request.cache_read


def merge_started(known: ev.Started, told: ev.Started) -> ev.Started:
    """What was said first of what the agent works with, and what that left out."""
    names = ("agent_version", "model", "cwd", "permission_mode", "context_window")
    left: Any = {name: getattr(told, name) for name in names if getattr(known, name) is None}
    return msgspec.structs.replace(known, **left)


MAX_TOOL_ERROR_CHARS = (
    500  # characters of a failed call's answer: enough to read why; the tape holds the whole
)
MILLISECOND = timedelta(milliseconds=1)
MAX_STDERR_LINES = 50  # last lines of stderr that can end up in an error text


# What was last on the main thread: words of the model, words that the agent put there, a call, or none of these.
MODEL_TEXT, SYNTHETIC_TEXT, TOOL_CALL = "said", "quoted", "call"
NO_ACTIVITY: tuple[str, str | None] = ("", None)


class Accumulator:
    """The running report of one run."""

    needs_tool_output = False

    def __init__(self, dialect: AgentProfile) -> None:
        self.agent = dialect
        self.started: ev.Started | None = None
        self.api_key_source: str | None = None
        self.session: str | None = None
        self.start_folder: str | None = (
            None  # the folder it was started in, for an agent that does not say where it works
        )
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None  # of the last event, where it has a time
        self.texts: list[str] = []
        self.partial: list[str] = []
        self.calls: dict[str, ToolCallSummary] = {}  # in the order of the calls
        self.open_calls: dict[
            str, tuple[ToolCallSummary, Raw]
        ] = {}  # those without an answer, with what they were given
        self.requests: dict[str, ev.Usage] = {}
        self.main_request: ev.Usage | None = None
        self.stop_reason: str | None = None  # of the main thread's last message, as far as told
        self.latest_activity: tuple[str, str | None] = (
            NO_ACTIVITY  # on the main thread: what it was, and of which message
        )
        self.last_compaction: ev.Compaction | None = None
        self.compactions = 0
        self.context_peak = -1  # the fullest that the main thread's window was seen; -1: never
        self.files: dict[str, ChangedFile] = {}
        self.files_by_given_path: dict[
            str, ChangedFile
        ] = {}  # the same files by the paths that calls named them with
        self.observed_changes: list[
            tuple[ChangedFile, ev.FileChanged]
        ] = []  # what the disk and git showed, and no call told
        self.denials: dict[str, DeniedCall] = {}
        self.denial_lines: dict[str, int] = {}
        self.unmeasured_requests = 0  # requests that an agent shows without what they used
        self.settled_denials: set[str] = (
            set()
        )  # refusals after which that tool worked, told out of order
        self.subagents: dict[str, Subagent] = {}
        self.background: dict[str, BackgroundTask] = {}
        self.call_by_task: dict[str, str] = {}  # task id -> call id
        self.retries: list[RequestRetry] = []
        self.limits = RateLimitStatus()
        self.results: list[ev.Result] = []
        self.duplicate_results = 0  # results that were told once more
        self.cost_state: ev.CostState | None = None
        self.facts = Facts()
        self.orphan_results = 0
        self.leftover_processes: list[str] = []  # processes that outlived the agent
        self.read_problems: list[str] = []  # why a part of the recording could not be read
        self.last_note = ""  # the last thing that we wrote on the tape ourselves
        self.unknown = 0
        self.is_free = False  # the model ran on a server that costs no fee
        self.context_window: int | None = None  # of the model, as its server told before the run

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Take in events. Kinds that change no figure (hooks, notices, thinking) only count for time."""
        for event in found:
            EVENT_METHODS[type(event)](self, event)
            self._update_times(event.at)

    def _update_times(self, at: datetime | None) -> None:
        self.last_at = at
        if self.first_at is None:
            self.first_at = at

    # -- what the model says and does: the kinds that are most of a stream, without an event for each (see Scribe) ------

    def tool_call(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        name: str,
        kind: str,
        message: OptionalStr,
        given: Raw,
        /,
    ) -> None:
        """A tool is asked for."""
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        tool = ToolCallSummary(id_, name, kind, None, None, False, at, None, parent)
        if self.calls.setdefault(id_, tool) is not tool:
            return  # the same call told twice
        self.open_calls[id_] = (tool, given)
        if parent is None:
            self.latest_activity = (TOOL_CALL, message)

    def tool_result(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ev.ToolResultDetails | Raw | None,
        /,
    ) -> None:
        """A tool did what it was asked for."""
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        try:
            tool, _ = self.open_calls.pop(id_)
        except KeyError:
            self.orphan_results += (
                id_ not in self.calls
            )  # else it is told twice: the first one counts
            return
        tool.ok = True
        begun = tool.started_at
        if begun is not None and at is not None:
            took = at - begun
            tool.duration_ms = (
                took.seconds * 1000 + took.microseconds // 1000
                if not took.days
                else _elapsed_ms(begun, at)
            )

    def tool_error(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ev.ToolResultDetails | Raw | None,
        /,
    ) -> None:
        """A tool could not do what it was asked for."""
        asked = id_ in self.open_calls
        self.tool_result(line, session, parent, at, id_, content, output)
        if asked:
            tool = self.calls[id_]
            tool.ok, tool.error = False, text_of(content)[:MAX_TOOL_ERROR_CHARS]

    def text(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: str,
        /,
    ) -> None:
        """The model answers."""
        self._update_times(at)
        if parent is None:
            self.texts.append(text)
            self.latest_activity = (MODEL_TEXT, message)
            if self.partial:
                self.partial.clear()

    def thinking(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: Raw,
        /,
    ) -> None:
        """The model thinks: that changes no figure."""
        self._update_times(at)

    def _on_text(self, event: ev.Text) -> None:
        self.text(event.line, event.session, event.parent, event.at, event.message, event.text)
        if event.synthetic and event.parent is None:
            self.latest_activity = (SYNTHETIC_TEXT, event.message)

    def _on_partial(self, event: ev.Partial) -> None:
        if event.parent is None:
            self.partial.append(event.text)

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        if event.id in self.calls:
            return  # the same call told twice
        head = (event.line, event.session, event.parent, event.at)
        self.tool_call(*head, event.id, event.name, event.kind, event.message, event.input)
        if event.asks and event.parent is None:
            self.facts.open_question = (event.id, event.message, event.line)
        if event.background:
            self._start_background_task(event.id, event.kind, None, event.line)

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        result = self.tool_error if event.is_error else self.tool_result
        head = (event.line, event.session, event.parent, event.at)
        result(*head, event.id, event.content, event.output)

    def usage(self, event: ev.Usage, /) -> None:
        """The model was asked."""
        self.last_at = event.at
        if self.first_at is None:
            self.first_at = event.at
        key = event.message if event.message is not None else f"line {event.line}"
        request = self.requests.setdefault(key, event)
        if request is not event:
            request = self.requests[key] = merge_usage(request, event)
        if event.parent is None:
            self.main_request, self.stop_reason = request, event.stop_reason
            new, write, read = request.input, request.cache_write, request.cache_read
            if (
                new is not None
                and write is not None
                and read is not None
                and new + write + read > self.context_peak
            ):
                self.context_peak = new + write + read

    # -- what the agent says about the run ------------------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        known = self.started
        self.started = event if known is None else merge_started(known, event)
        if self.files and event.cwd is not None and (known is None or known.cwd is None):
            self._rebase_files(event.cwd)
        self.api_key_source = self.api_key_source or event.api_key_source
        self.session = event.session or self.session

    def _on_user(self, event: ev.UserMessage) -> None:
        if event.parent is None:
            self.latest_activity = NO_ACTIVITY
            if event.kind in ("interrupted", "prompt"):
                self.facts.interrupted_line = event.line if event.kind == "interrupted" else None

    def _on_retry(self, event: ev.Retry) -> None:
        self.retries.append(RequestRetry(event.attempt, event.status, event.error, event.delay_ms))

    def _on_limit(self, event: ev.RateLimit) -> None:
        self.limits = RateLimitStatus(event.status, event.resets_at, event.kind, event.utilization)
        self.facts.limit_line = event.line

    def _on_compaction(self, event: ev.Compaction) -> None:
        self.compactions += 1
        if event.parent is None:
            self.last_compaction, self.main_request = event, None

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        key = event.call or f"line {event.line} {len(self.denials)}"
        call = self.calls.get(key)
        known = self.denials.get(key)
        if known is None:
            known = self.denials[key] = DeniedCall(
                event.tool or (call.name if call is not None else None), event.call
            )
            self.denial_lines[key] = event.line
            known.input = decode_raw(self.open_calls[key][1]) if key in self.open_calls else None
        if event.input is not ev.NO_JSON:
            known.input = decode_raw(event.input)
        known.reason = known.reason or event.reason
        if event.settled:
            self.settled_denials.add(key)

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            self.facts.failure, self.latest_activity = event, NO_ACTIVITY

    def _on_agent_result(self, event: ev.Result) -> None:
        known = len(self.results)
        if event.amends and self.results:
            self.results.pop()
        elif event.uuid is not None:
            self.results = [
                one
                for one in self.results
                if (one.uuid, one.session) != (event.uuid, event.session)
            ]
            self.duplicate_results += known - len(self.results)
        self.results.append(event)
        self.session = event.session or self.session

    def _on_cost(self, event: ev.CostState) -> None:
        self.cost_state = event
        self.session = event.session or self.session

    def _on_stderr(self, event: ev.Stderr) -> None:
        self.facts.stderr.append(event.text)
        del self.facts.stderr[:-MAX_STDERR_LINES]

    def _on_checked(self, event: ev.SchemaChecked) -> None:
        self.facts.schema_check = event

    def _on_stop(self, event: ev.StopRequested) -> None:
        if self.facts.stop is None:
            self.facts.stop = event
            self.facts.background_at_stop = [
                task.id for task in self.background.values() if task.status == "running"
            ]

    def _on_exit(self, event: ev.Exited) -> None:
        self.facts.exited = event

    def _on_malformed(self, event: ev.Malformed) -> None:
        if len(self.facts.non_json_lines) < MAX_STDERR_LINES:
            self.facts.non_json_lines.append(event.head)

    def _on_notice(self, event: ev.Notice) -> None:
        if event.kind == "left" and event.text is not None:
            self.leftover_processes.append(event.text)
        elif event.kind == "note":
            self.last_note = event.text or ""
        elif event.kind == "cut" and not event.line:
            self.read_problems.append(event.text or "")
        self.unmeasured_requests += event.kind == "request"

    def _on_unknown(self, event: ev.Unknown) -> None:
        self.unknown += 1

    # -- work beside the main thread, and files -------------------------------------------------------

    def _on_task(self, event: ev.TaskStarted) -> None:
        call = event.call or event.task
        self.call_by_task[event.task] = call
        if event.kind == "subagent":
            known = self.subagents.setdefault(call, Subagent(call, status="running"))
            known.type = known.type or event.agent_type
            known.description = known.description or event.description
        if event.background:
            self._start_background_task(call, event.kind, event.description, event.line)
        elif call in self.background:
            known_task = self.background[call]
            known_task.description = known_task.description or event.description

    def _start_background_task(
        self, call: str, kind: str | None, description: str | None, line: int
    ) -> None:
        task = self.background.get(call)
        if task is None:
            task = self.background[call] = BackgroundTask(call, kind)
            self.facts.background_launch_lines[call] = line
        task.description = task.description or description

    def _on_task_end(self, event: ev.TaskEnded) -> None:
        call = event.call or self.call_by_task.get(event.task, event.task)
        status = event.status or "completed"
        if call in self.background and self.background[call].status in ("running", "killed"):
            self.background[call].status = status
        if call in self.subagents:
            self.subagents[call].status = status

    def _on_file(self, event: ev.FileChanged) -> None:
        known = self.files_by_given_path.get(event.path)
        if known is None:
            known = self.files_by_given_path[event.path] = self._file_entry(event)
        if event.source != "tool":
            self.observed_changes.append((known, event))
            if event.source == "git" and known.source != "git":
                return  # of what is known it says nothing new
        if event.source == "tool":
            known.source = "tool"  # the disk may have shown it before
        elif (known.change, event.change, known.source) == ("created", "deleted", "filesystem"):
            del (
                self.files[known.absolute],
                self.files_by_given_path[event.path],
            )  # it came and went: nothing is left of it
            return
        if event.change == "deleted" or known.change == "deleted":
            known.change = event.change
        if event.call is not None and not event.line and event.call in known.tools:
            known.change = (
                event.change
            )  # told once more, by what the agent keeps: that knows better
        elif event.call is not None:
            known.tools.append(event.call)

    def _file_entry(self, event: ev.FileChanged) -> ChangedFile:
        """A file's entry: told before under another spelling of its path, or new."""
        cwd = (self.started.cwd if self.started is not None else None) or self.start_folder
        path, absolute, inside = resolve_path(event.path, cwd)
        if absolute in self.files:
            return self.files[absolute]
        self.files[absolute] = ChangedFile(path, absolute, event.change, inside, [], event.source)
        return self.files[absolute]

    def _rebase_files(self, cwd: str) -> None:
        """Name the files anew, now that it is known where the agent works."""
        for file in self.files.values():
            file.path, file.absolute, file.inside = resolve_path(file.absolute, cwd)
        self.files = {file.absolute: file for file in self.files.values()}

    @property
    def has_known_events(self) -> bool:
        """Whether anything was said in a known language."""
        return bool(
            self.started
            or self.session
            or self.requests
            or self.calls
            or self.results
            or self.texts
            or self.retries
        )

    @property
    def result(self) -> ev.Result | None:
        """The result that counts: the last one that is not an empty echo (E4)."""
        for result in reversed(self.results):
            if not _is_echo(result):
                return result
        return self.results[-1] if self.results else None


def _elapsed_ms(begun: datetime | None, at: datetime | None) -> int | None:
    """Milliseconds between a call and its answer; None where one of the times is not known."""
    return None if begun is None or at is None else max(0, (at - begun) // MILLISECOND)


def _ignore_event(fold: Accumulator, event: ev.Event) -> None:
    """Events that change no figure."""


def _is_echo(result: ev.Result) -> bool:
    """A result that only repeats the end of a turn: a success that says nothing."""
    silent = not result.text and result.structured_output is ev.NO_JSON
    return (
        silent
        and not result.is_error
        and result.subtype == "success"
        and result.local_command is None
    )


# Which method takes in which event. Events that change no figure are still events of the run.
EVENT_METHODS: dict[type[ev.Event], Callable[[Accumulator, Any], None]] = {
    ev.Text: Accumulator._on_text,
    ev.ToolCall: Accumulator._on_tool_call,
    ev.ToolResult: Accumulator._on_tool_result,
    ev.Usage: Accumulator.usage,
    ev.Partial: Accumulator._on_partial,
    ev.Started: Accumulator._on_started,
    ev.UserMessage: Accumulator._on_user,
    ev.Retry: Accumulator._on_retry,
    ev.RateLimit: Accumulator._on_limit,
    ev.Compaction: Accumulator._on_compaction,
    ev.PermissionDenied: Accumulator._on_denied,
    ev.TaskStarted: Accumulator._on_task,
    ev.TaskEnded: Accumulator._on_task_end,
    ev.Failure: Accumulator._on_failure,
    ev.Result: Accumulator._on_agent_result,
    ev.CostState: Accumulator._on_cost,
    ev.FileChanged: Accumulator._on_file,
    ev.Stderr: Accumulator._on_stderr,
    ev.StopRequested: Accumulator._on_stop,
    ev.SchemaChecked: Accumulator._on_checked,
    ev.Exited: Accumulator._on_exit,
    ev.Malformed: Accumulator._on_malformed,
    ev.Unknown: Accumulator._on_unknown,
    ev.Notice: Accumulator._on_notice,
    **dict.fromkeys((ev.Thinking, ev.TaskProgress, ev.Hook), _ignore_event),
}
