"""The running state of one run: calls, requests, files, denials, background work. Pure.

It serves the live view, live budgets and the final report. Nothing in it depends on the agent.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, ValuesView
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct

from .. import event as ev
from ..codec.decode import decode_raw, text_of
from ..event import OptionalStr, OptionalTime
from ..report import (
    AgentProfile,
    BackgroundTask,
    DeniedCall,
    RateLimitStatus,
    RequestRetry,
    Subagent,
    ToolCallSummary,
)
from .changed_files import ChangedFiles
from .facts import Facts
from .shell_commands import input_only_reads
from .usage import ModelKeys, context_tokens, last_request, merge_usage

MAX_TOOL_ERROR_CHARS = 500  # of a failed call's result; the recording keeps all of it
MAX_STDERR_LINES = 50  # last lines of stderr, for error messages
MAX_STDERR_CHARS = 1 << 16  # kept of each
MILLISECOND = timedelta(milliseconds=1)

# What came last on the main thread: text of the model, text written by the agent, or a tool call.
MODEL_TEXT = "model_text"
SYNTHETIC_TEXT = "synthetic_text"
TOOL_CALL = "tool_call"


class RunStart(Struct, frozen=True, gc=False):
    """Where an agent announced itself; the whole event would be kept for each of thousands."""

    line: int
    session: str | None


class Accumulator:
    """Takes in the events of one run; a sink for readers."""

    needs_tool_output = False
    # Attributes are read and written several times per line: slots save 1 % of steno.read.
    __slots__ = (
        *("abandoned_calls", "agent", "answered_tasks", "api_key_source", "background"),
        *("call_by_task", "calls", "compactions", "context_peak", "context_report"),
        *("context_window", "cost_state", "cut_lines", "denial_lines", "denials"),
        *("duplicate_results", "earlier_totals", "facts", "failed_calls", "files", "first_at"),
        *("has_user_message", "is_free", "last_at", "last_compaction", "latest_activity"),
        *("latest_message", "leftover_processes", "limits", "local_command_after", "main_keys"),
        *("main_request", "model_keys", "open_calls", "orphan_results", "partial"),
        *("pending_retry", "read_problems", "requests", "results_by_key", "retries"),
        *("running_tasks", "session", "settled_denials", "start_folder", "started", "starts"),
        *("stop_reason", "subagent_keys", "subagents", "texts", "totals_difference", "unknown"),
        "unmeasured_requests",
    )

    def __init__(self, agent: AgentProfile) -> None:
        self.agent = agent
        self.started: ev.Started | None = None
        self.starts: list[RunStart] = []
        self.api_key_source: str | None = None
        self.session: str | None = None
        self.start_folder: str | None = None  # for agents that don't report their folder
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None  # of the last event, if it has a time
        self.texts: list[str] = []
        self.partial: list[str] = []
        self.calls: dict[str, ToolCallSummary] = {}  # in call order
        self.open_calls: dict[str, tuple[ToolCallSummary, Raw]] = {}  # with their input
        self.abandoned_calls = dict(self.open_calls)  # open when a result closed their turn
        self.failed_calls: list[str] = []  # ids of calls whose result is an error
        self.requests: dict[str, ev.Usage] = {}
        self.main_keys: list[str] = []  # of the main thread's requests
        self.main_request: ev.Usage | None = None
        self.pending_retry: ev.Retry | None = None  # until the next sign of progress
        self.stop_reason: str | None = None  # of the main thread's last message
        self.latest_activity: str | None = None  # of the main thread
        self.latest_message: str | None = None  # id of the message it belongs to
        self.last_compaction: ev.Compaction | None = None
        self.compactions = 0
        self.context_report: ev.ContextUsage | None = None
        self.context_peak = -1  # tokens on the main thread; -1: not measured
        self.files = ChangedFiles()
        self.denials: dict[str, DeniedCall] = {}
        self.denial_lines: dict[str, int] = {}
        self.settled_denials: set[str] = set()  # the tool worked later, reported out of order
        self.unmeasured_requests = 0  # requests that an agent reports without usage
        self.subagents: dict[str, Subagent] = {}
        self.subagent_keys: dict[str, str] = {}  # of the last request of each, by its call
        self.background: dict[str, BackgroundTask] = {}
        # Ordered: the first key of a plain dict is found slowly if earlier ones were deleted.
        self.running_tasks: OrderedDict[str, BackgroundTask] = OrderedDict()  # those of background
        self.call_by_task: dict[str, str] = {}  # task id -> call id
        self.has_user_message = False  # on the main thread
        self.local_command_after: int | None = None  # main requests before the last such command
        self.retries: list[RequestRetry] = []
        self.limits = RateLimitStatus()
        self.results_by_key: dict[object, ev.Result] = {}  # by id and session, in order
        self.model_keys = ModelKeys(())  # of the last result
        self.duplicate_results = 0
        self.answered_tasks = 0  # results that answer the end of background work
        self.cost_state: ev.CostState | None = None
        self.earlier_totals: ev.CostState | None = None  # of the session before this run
        self.facts = Facts()
        self.orphan_results = 0  # tool results without a call
        self.leftover_processes: list[str] = []  # processes that outlived the agent
        self.totals_difference = ""  # between the requests and the agent's own total
        self.read_problems: list[str] = []  # why part of the recording could not be read
        self.cut_lines = 0  # lines too long to be read
        self.unknown = 0
        self.is_free = False  # the model runs on a local server
        self.context_window: int | None = None  # as reported by the model server

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Take in events. Kinds that change no figure only count for time."""
        for event in found:
            EVENT_METHODS[type(event)](self, event)
            self.last_at = event.at
            if self.first_at is None:
                self.first_at = event.at

    # -- the most frequent kinds, without an event object each (see agents.sink) ------------------

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
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        self.pending_retry = None
        tool = ToolCallSummary(id_, name, kind, None, None, False, at, None, parent)
        if self.calls.setdefault(id_, tool) is not tool:
            return  # repeated
        self.open_calls[id_] = (tool, given)
        if parent is None:
            self.latest_activity = TOOL_CALL
            self.latest_message = message

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
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        try:
            tool, given = self.open_calls.pop(id_)
        except KeyError:
            if id_ not in self.abandoned_calls:
                self.orphan_results += id_ not in self.calls  # else repeated: the first one counts
                return
            tool, given = self.abandoned_calls.pop(id_)
        tool.ok = True
        if not self.facts.has_worked and tool.kind == "shell":
            self.facts.has_worked = not input_only_reads(given)
        begun = tool.started_at
        if begun is not None and at is not None:
            took = at - begun
            if took.days:
                tool.duration_ms = max(0, took // MILLISECOND)
            else:  # the common case, without a division of timedeltas
                tool.duration_ms = took.seconds * 1000 + took.microseconds // 1000

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
        is_open = id_ in self.open_calls or id_ in self.abandoned_calls
        had_worked = self.facts.has_worked
        self.tool_result(line, session, parent, at, id_, content, output)
        if is_open:
            tool = self.calls[id_]
            tool.ok = False
            self.failed_calls.append(id_)
            self.facts.has_worked = had_worked
            tool.error = text_of(content)[:MAX_TOOL_ERROR_CHARS]

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
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        self.pending_retry = None
        if parent is None:
            self.texts.append(text)
            self.latest_activity = MODEL_TEXT
            self.latest_message = message
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
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        self.pending_retry = None

    def usage(self, event: ev.Usage, /) -> None:
        at = self.last_at = event.at
        if self.first_at is None:
            self.first_at = at
        self.pending_retry = None
        # request_key() and context_tokens() are inlined here: this runs for every message.
        key = event.message
        if key is None:
            key = f"line {event.line}"
        is_main = event.parent is None
        request = self.requests.setdefault(key, event)
        if request.session != event.session:
            key, request = self._request_of_session(key, request, event)
        if request is not event:
            request = self.requests[key] = merge_usage(request, event)
        elif is_main:
            self.main_keys.append(key)
        if not is_main:
            self.subagent_keys[event.parent or ""] = key
        else:
            self.main_request = request
            self.stop_reason = event.stop_reason
            new = request.input
            write = request.cache_write
            read = request.cache_read
            if new is not None and write is not None and read is not None:
                used = new + write + read
                if used > self.context_peak:
                    self.context_peak = used

    def _request_of_session(
        self, key: str, known: ev.Usage, event: ev.Usage
    ) -> tuple[str, ev.Usage]:
        """Model servers may reuse ids in another session; a transcript has copies of messages."""
        if event.session is None or (self.started is not None and self.started.transcript):
            return key, known
        key = f"{event.session} {key}"
        return key, self.requests.setdefault(key, event)

    # -- the same kinds as events -----------------------------------------------------------------

    def _on_text(self, event: ev.Text) -> None:
        self.text(event.line, event.session, event.parent, event.at, event.message, event.text)
        if event.synthetic and event.parent is None:
            self.latest_activity = SYNTHETIC_TEXT
            self.latest_message = event.message

    def _on_partial(self, event: ev.Partial) -> None:
        self.pending_retry = None
        if event.parent is None:
            self.partial.append(event.text)

    def _on_thinking(self, event: ev.Thinking) -> None:
        self.pending_retry = None

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        if event.id in self.calls:
            return  # repeated
        head = (event.line, event.session, event.parent, event.at)
        self.tool_call(*head, event.id, event.name, event.kind, event.message, event.input)
        if event.asks and event.parent is None:
            self.facts.open_question = (event.id, event.message, event.line)
        if event.background:
            self._start_background_task(event.id, event.kind, None, event.line)

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        result = self.tool_error if event.is_error else self.tool_result
        head = (event.line, event.session, event.parent, event.at)
        is_open = event.id in self.open_calls or event.id in self.abandoned_calls
        result(*head, event.id, event.content, event.output)
        if is_open and event.duration_ms:  # 0 is rounded: the times of the lines say more
            self.calls[event.id].duration_ms = event.duration_ms

    # -- what the agent reports about the run -----------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        known = self.started
        self.starts.append(RunStart(event.line, event.session))
        self.started = event if known is None else known.fill(event)
        if self.files and event.cwd is not None and (known is None or known.cwd is None):
            self.files.rebase(event.cwd)
        self.api_key_source = self.api_key_source or event.api_key_source
        self.session = event.session or self.session

    def _on_user(self, event: ev.UserMessage) -> None:
        if event.parent is not None or event.kind == "sent":  # the agent takes it later
            return
        self.has_user_message = True
        request = self.main_request
        # Claude Code 2.1.197 writes the prompt of a session that ends with /clear after its answer.
        is_older = request is not None and is_before(event.at, request.at)
        if event.kind == "summary" or is_older:
            return  # nothing to be answered
        self.latest_activity = None
        if event.kind in ("interrupted", "prompt"):
            self.facts.interrupted_line = event.line if event.kind == "interrupted" else None

    def _on_local_command(self, event: ev.LocalCommand) -> None:
        self.local_command_after = len(self.main_keys)

    def _on_retry(self, event: ev.Retry) -> None:
        self.retries.append(RequestRetry(event.attempt, event.status, event.error, event.delay_ms))
        self.pending_retry = event

    def _on_limit(self, event: ev.RateLimit) -> None:
        self.limits = RateLimitStatus(event.status, event.resets_at, event.kind, event.utilization)
        self.facts.limit_line = event.line

    def _on_compaction(self, event: ev.Compaction) -> None:
        self.compactions += 1
        if event.parent is None:
            self.last_compaction = event
            self.main_request = None

    def _on_context_usage(self, event: ev.ContextUsage) -> None:
        if event.parent is None:
            self.context_report = event

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        key = event.call or f"line {event.line} {len(self.denials)}"
        call = self.calls.get(key)
        known = self.denials.get(key)
        if known is None:
            tool = event.tool or (call.name if call is not None else None)
            known = self.denials[key] = DeniedCall(tool, event.call)
            self.denial_lines[key] = event.line
            entry = self.open_calls.get(key) or self.abandoned_calls.get(key)
            if entry is not None:
                known.input = decode_raw(entry[1])
        if event.input is not ev.NO_JSON:
            known.input = decode_raw(event.input)
        known.reason = known.reason or event.reason
        if event.settled:
            self.settled_denials.add(key)

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            self.facts.failure = event
            self.latest_activity = None

    def _on_agent_result(self, event: ev.Result) -> None:
        key: object = id(event) if event.uuid is None else (event.uuid, event.session)
        replaced: ev.Result | None
        if event.amends and self.results_by_key:
            _, replaced = self.results_by_key.popitem()
        else:
            replaced = self.results_by_key.pop(key, None)
            self.duplicate_results += replaced is not None
        self.results_by_key[key] = event
        self.model_keys = ModelKeys(event.models or ())
        self.answered_tasks += event.answers_task
        self.answered_tasks -= replaced is not None and replaced.answers_task
        if event.answers_task:
            self._end_notified_task()
        self.abandoned_calls |= self.open_calls
        self.open_calls.clear()
        self.session = event.session or self.session

    def _on_cost(self, event: ev.CostState) -> None:
        if event.is_earlier:
            self.earlier_totals = event
            return
        self.cost_state = event
        self.session = event.session or self.session

    def _on_stderr(self, event: ev.Stderr) -> None:
        self.facts.stderr.append(event.text[:MAX_STDERR_CHARS])
        del self.facts.stderr[:-MAX_STDERR_LINES]

    def _on_checked(self, event: ev.SchemaChecked) -> None:
        self.facts.schema_check = event

    def _on_stop(self, event: ev.StopRequested) -> None:
        if self.facts.stop is None:
            self.facts.stop = event
            self.facts.background_at_stop = frozenset(self.running_tasks)

    def _on_exit(self, event: ev.Exited) -> None:
        self.facts.exited = event

    def _on_malformed(self, event: ev.Malformed) -> None:
        if len(self.facts.non_json_lines) < MAX_STDERR_LINES:
            self.facts.non_json_lines.append(event.head)

    def _on_notice(self, event: ev.Notice) -> None:
        if event.kind == "left" and event.text is not None:
            self.leftover_processes.append(event.text)
        elif event.kind == "note":
            self.facts.add_note(event.text or "")
        elif event.kind == "totals":
            self.totals_difference = event.text or ""
        elif event.kind == "cut" and not event.line:
            self.read_problems.append(event.text or "")
        self.unmeasured_requests += event.kind == "request"
        self.cut_lines += event.kind == "line_cut"

    def _on_unknown(self, event: ev.Unknown) -> None:
        self.unknown += 1

    # -- subagents, background work and files -----------------------------------------------------

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
            self.running_tasks[call] = task
            self.facts.background_launch_lines[call] = line
        task.description = task.description or description

    def _end_notified_task(self) -> None:
        """Mark one more task as ended if the agent answers more tasks than it reported as ended."""
        ended = len(self.background) - len(self.running_tasks)
        if self.running_tasks and self.answered_tasks > ended:
            _, task = self.running_tasks.popitem(last=False)
            task.status = "ended"

    def _on_task_end(self, event: ev.TaskEnded) -> None:
        call = event.call or self.call_by_task.get(event.task, event.task)
        status = event.status or "completed"
        self.facts.background_end_lines[call] = event.line
        if call in self.background and self.background[call].status in ("running", "killed"):
            self.background[call].status = status
            if status != "running":
                self.running_tasks.pop(call, None)
        if call in self.subagents:
            self.subagents[call].status = status
        if event.usage is not None:
            self._add_last_request(event, call, event.usage)

    def _add_last_request(self, event: ev.TaskEnded, call: str, usage: ev.ModelUsage) -> None:
        """Take in the last request of a subagent, unless the stream shows it."""
        key = self.subagent_keys.get(call, "")
        known = self.requests.get(key)
        final = last_request(event, call, usage, self.model if known is None else known.model)
        if known is not None and context_tokens(known) == context_tokens(final):
            self.requests[key] = merge_usage(known, final)
        else:
            self.subagent_keys[call] = f"{call} last"
            self.requests[f"{call} last"] = final

    def _on_file(self, event: ev.FileChanged) -> None:
        cwd = (self.started.cwd if self.started is not None else None) or self.start_folder
        self.files.add(event, cwd)
        if event.source == "tool":
            self.facts.has_worked = True

    # -- derived values ---------------------------------------------------------------------------

    @property
    def results(self) -> ValuesView[ev.Result]:
        return self.results_by_key.values()

    @property
    def last_result(self) -> ev.Result | None:
        return next(reversed(self.results_by_key.values()), None)

    @property
    def model(self) -> str | None:
        """The main model: as announced, else of the main thread's first request."""
        if self.started is not None and self.started.model is not None:
            return self.started.model
        return self.requests[self.main_keys[0]].model if self.main_keys else None

    @property
    def has_activity(self) -> bool:
        """Whether the agent has started to work."""
        has_work = self.requests or self.calls or self.results_by_key or self.texts or self.retries
        return bool(has_work or self.started or self.partial)

    @property
    def has_later_requests(self) -> bool:
        """Whether the main thread sent a request after the last result."""
        request = self.main_request
        result = self.last_result
        return request is not None and result is not None and request.line > result.line

    @property
    def result(self) -> ev.Result | None:
        """The last result that is not an empty echo of a turn's end."""
        for result in reversed(self.results_by_key.values()):
            is_echo = (
                not result.text
                and result.structured_output is ev.NO_JSON
                and not result.is_error
                and result.subtype == "success"
                and result.local_command is None
            )
            if not is_echo:
                return result
        return self.last_result


def is_before(first: datetime | None, second: datetime | None) -> bool:
    """Whether one time is known to be before another."""
    return first is not None and second is not None and first < second


def _ignore_event(run: Accumulator, event: ev.Event) -> None:
    """For events that change no figure."""


EVENT_METHODS: dict[type[ev.Event], Callable[[Accumulator, Any], None]] = {
    ev.Text: Accumulator._on_text,
    ev.ToolCall: Accumulator._on_tool_call,
    ev.ToolResult: Accumulator._on_tool_result,
    ev.Usage: Accumulator.usage,
    ev.Partial: Accumulator._on_partial,
    ev.Started: Accumulator._on_started,
    ev.UserMessage: Accumulator._on_user,
    ev.LocalCommand: Accumulator._on_local_command,
    ev.Retry: Accumulator._on_retry,
    ev.RateLimit: Accumulator._on_limit,
    ev.Compaction: Accumulator._on_compaction,
    ev.ContextUsage: Accumulator._on_context_usage,
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
    ev.Thinking: Accumulator._on_thinking,
    **dict.fromkeys((ev.TaskProgress, ev.Alert, ev.Hook, ev.Attachment), _ignore_event),
}
