"""The stream and session files of Copilot. Pure.

Versions up to 1.0.92 record no requests: their usage is in the line of a process's shutdown.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_first_object, decode_lenient, text_of
from ...event import EventHead
from ..typed_reader import (
    TypedLineReader,
    add_counters,
    subtract_counters,
    uncached_input,
)
from . import tables
from .wire import (
    Accounting,
    CodeChanges,
    EventData,
    EventLine,
    RequestCount,
    ResultUsage,
    ToolError,
    ToolInput,
    ToolOutput,
    UsageRecord,
)

MILLISECOND = timedelta(milliseconds=1)
MAX_REQUESTS = 10_000  # of one run; more is damage
SHUTDOWN_MARKER = b'"session.shutdown"'


class SessionTotals(Struct):
    """The usage of a run whose requests are not recorded, from the line of its shutdown."""

    models: dict[str, ev.ModelUsage] = field(default_factory=dict)
    requests: int = 0
    files: list[str] = field(default_factory=list)
    includes_earlier_runs: bool = False


class CopilotReaderState(Struct):
    """What must survive between two lines. Stored in the ledger: field names stay."""

    session: str | None = None  # of a session file
    version: str | None = None
    agents: dict[str, str] = field(default_factory=dict)  # subagent id -> the call that started it
    window: int | None = None
    model: str | None = None
    prompts: set[str] = field(default_factory=set)
    text: str | None = None
    error: tuple[str | None, int | None, str] | None = None  # kind, HTTP status, text
    # The last failed request: attempt, HTTP status, message.
    upstream: tuple[int | None, int | None, str] = (None, None, "")
    aborted: str | None = None  # why it was interrupted
    away: set[str] = field(default_factory=set)  # calls in the background
    begun: datetime | None = None
    asking_ms: int = 0  # spent in successful requests
    asked: int = 0  # number of successful requests
    editing: set[str] = field(default_factory=set)  # open calls that change files
    recorded: bool = False  # this version records each request
    resumed: bool = False
    answers: int = 0  # messages of the model since the start of the run
    shutdown: SessionTotals | None = None  # the last one as written
    totals: dict[str, ev.ModelUsage] = field(default_factory=dict)  # of the session
    thinking: str | None = None  # the last one


class CopilotReader(TypedLineReader[EventLine, CopilotReaderState]):
    """Turns the lines of one run, or of a session file, into events."""

    def __init__(self) -> None:
        super().__init__(EventLine, CopilotReaderState())
        self.session: str | None = None
        self._result_event: ev.Result | None = None
        self._run_totals: SessionTotals | None = None
        self._changed_paths: set[str] = set()

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Return nothing: stderr has no events."""
        return []

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """Return the usage of the session file's run with the same prompt, by request or in sum."""
        reader = CopilotReader()
        is_found = False
        run: list[ev.Event] = []
        for data in lines:
            line = decode_first_object(data, EventLine)
            if line is None or line.data is None:
                continue
            if line.type in ("session.start", "session.resume"):
                if is_found:
                    break
                run.clear()
            if line.type == "user.message" and _prompt_id(line.data) in self._state.prompts:
                is_found = True
            for event in reader._events(line, data, 0, None):
                if isinstance(event, ev.Started):
                    run.append(replace(event, transcript=False))
                elif isinstance(event, ev.Usage):
                    run.append(event)
        if not is_found:
            return []
        requests = [event for event in run if isinstance(event, ev.Usage)]
        if not requests:
            return run + self._total_events(reader._run_totals)
        return run + self._reason_events(requests)

    def _reason_events(self, requests: list[ev.Usage]) -> list[ev.Event]:
        """The result with the reason why the last answer ended, which the stream does not have."""
        reasons = [request.stop_reason for request in requests if request.parent is None]
        if self._result_event is None or not reasons:
            return []
        return [replace(self._result_event, stop_reason=reasons[-1], amends=True)]

    def _total_events(self, totals: SessionTotals | None) -> list[ev.Event]:
        """The usage and the files of a run of a version that does not record its requests."""
        if totals is None or not totals.models:
            return []
        head = (0, self.session, None, None)
        events: list[ev.Event] = [
            ev.FileChanged(*head, path) for path in totals.files if path not in self._changed_paths
        ]
        usage = _sum_usage(totals.models.values())
        if self._result_event is None:
            return [*events, ev.CostState(*head, None, totals.models)]
        result = replace(
            self._result_event,
            turns=None if totals.includes_earlier_runs else totals.requests,
            requests=None if totals.includes_earlier_runs else totals.requests,
            usage=usage,
            models=None if totals.includes_earlier_runs else totals.models,
            over_session=totals.includes_earlier_runs,
            amends=True,
        )
        return [*events, result]

    def _events(
        self, line: EventLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        state = self._state
        at = line.timestamp or at
        state.begun = state.begun or at
        head = (number, self.session or state.session, self._parent_of(line), at)
        if line.data is None:
            if line.type == "result":
                return self._result(line, head)
        elif line.type in _EVENT_BUILDERS:
            return _EVENT_BUILDERS[line.type](self, head, line.data, line)
        if line.type in tables.IGNORED_EVENT_TYPES:
            return []
        if line.type in tables.NOTICE_EVENT_TYPES:
            details = line.data or EventData()
            kind = details.info_type or details.warning_type or line.type.partition(".")[2]
            text = details.message or details.content or details.reason or details.new_model
            return [ev.Notice(*head, kind, text)]
        return [ev.Unknown(*head, line.type or "no type", data)]

    def _parent_of(self, line: EventLine) -> str | None:
        """The call of the subagent that an event belongs to."""
        if line.data is not None and line.data.parent_tool_call_id:
            return line.data.parent_tool_call_id
        if line.agent_id is None:
            return None
        return self._state.agents.get(line.agent_id, line.agent_id)

    # -- session -------------------------------------------------------------------------------

    def _session_start(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        """The start of a run in a session file."""
        state = self._state
        state.session = data.session_id or state.session
        state.version = data.copilot_version or state.version
        state.window = None
        state.resumed = line.type == "session.resume"
        state.answers = 0
        self._run_totals = None
        state.model = data.selected_model or state.model
        number, _, parent, at = head
        return [
            ev.Started(
                *(number, state.session, parent, at),
                agent_version=state.version,
                model=state.model,
                cwd=data.context.cwd if data.context is not None else None,
                transcript=True,
            )
        ]

    def _model_selected(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        _, _, parent, _ = head
        return [ev.Started(*head, model=data.model)] if parent is None else []

    # -- usage ---------------------------------------------------------------------------------

    def _usage(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        usage = data.usage or UsageRecord()
        state = self._state
        state.recorded = True
        number, _, parent, _ = head
        request = _request_id(usage, number)
        cached = usage.cache_read_tokens
        written = usage.cache_write_tokens
        event = ev.Usage(
            *head,
            message=request,
            model=usage.model,
            input=uncached_input(usage.input_tokens, cached, written),
            cache_write=written,
            cache_read=cached,
            output=usage.output_tokens,
            reasoning=usage.reasoning_tokens,
            cache_write_1h=0,
            final=True,
            stop_reason=tables.stop_reason_of(usage.finish_reason),
            uuid=request,
        )
        window = usage.max_prompt_tokens
        if window is None or window == state.window or parent is not None:
            return [event]
        state.window = window
        # The window first: the use of the context is a fraction of it.
        return [ev.Started(*head, model=usage.model, context_window=window), event]

    def _shutdown(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        """The end of a process, with the only figures of a version that records no requests."""
        state = self._state
        if state.recorded or data.model_metrics is None:
            return []
        totals = _totals_at(data)
        self._run_totals = own = self._own_part(totals)
        state.shutdown = totals
        if not totals.models:
            return []
        for model, usage in own.models.items():
            known = state.totals.get(model)
            state.totals[model] = usage if known is None else _sum_usage((known, usage))
        requests = [ev.Notice(*head, "request") for _ in range(min(own.requests, MAX_REQUESTS))]
        return [*requests, ev.CostState(*head, None, dict(state.totals))]

    def _own_part(self, totals: SessionTotals) -> SessionTotals:
        """The part of this run: 1.0.60 counts the process, 1.0.92 the session.

        The number of the model's messages tells which of the two it is.
        """
        state = self._state
        before = state.shutdown
        if before is None:
            is_exact = not state.resumed or totals.requests == state.answers
            return replace(totals, includes_earlier_runs=not is_exact)
        known_files = set(before.files)
        files = [path for path in totals.files if path not in known_files]
        since = totals.requests - before.requests
        if abs(since - state.answers) >= abs(totals.requests - state.answers):
            return replace(totals, files=files)
        models = {
            model: _subtract_usage(usage, before.models.get(model))
            for model, usage in totals.models.items()
        }
        return SessionTotals(models, max(0, since), files)

    def _request_finished(
        self, head: EventHead, data: EventData, line: EventLine
    ) -> list[ev.Event]:
        if data.outcome == "success":
            self._state.asked += 1
            self._state.asking_ms += data.dispatch_duration_ms or 0
        return []

    def _compaction(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        if data.success is False:
            return [ev.Notice(*head, "compaction_failed", data.reason)]
        before, after = data.pre_compaction_tokens, data.post_compaction_tokens
        return [ev.Compaction(*head, "auto", before, after)]

    # -- messages ------------------------------------------------------------------------------

    def _prompt(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        self._state.aborted = None
        prompt = _prompt_id(data)
        if prompt is not None:
            self._state.prompts.add(prompt)
        files = [ev.Attachment(*head, None, file) for file in data.attachments or ()]
        return [ev.UserMessage(*head, "prompt", data.content or "", line.id), *files]

    def _text(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        self._state.answers += 1
        events: list[ev.Event] = []
        thinking = data.reasoning_text
        if thinking and thinking != self._state.thinking:  # session files have no other line of it
            events.append(ev.Thinking(*head, data.api_call_id, thinking))
        self._state.thinking = None
        if not data.content:
            return events
        _, _, parent, _ = head
        if parent is None:
            self._state.text = data.content
        return [*events, ev.Text(*head, data.api_call_id, data.content)]

    def _partial(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        return [ev.Partial(*head, data.delta_content)] if data.delta_content else []

    def _thinking(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        self._state.thinking = data.content
        return [ev.Thinking(*head, None, data.content or "")]

    # -- calls ---------------------------------------------------------------------------------

    def _tool_call(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        name = data.tool_name or ""
        id_ = data.tool_call_id or ""
        input_ = ToolInput()
        if data.arguments is not ev.NO_JSON:
            input_ = decode_lenient(data.arguments, ToolInput)
        kind = tables.tool_kind(name, data.mcp_server_name)
        background = kind == "shell" and input_.mode == "async" and input_.detach is not True
        if background:
            self._state.away.add(id_)
        if kind in ("file_write", "file_edit"):
            self._state.editing.add(id_)
        return [
            ev.ToolCall(
                *head,
                id=id_,
                name=name,
                kind=kind,
                message=data.api_call_id,
                input=data.arguments,
                background=background,
                asks=name in tables.USER_INPUT_TOOLS,
            )
        ]

    def _user_command(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        """A shell command that the user runs with "!"; its result is a tool's."""
        command = decode_lenient(data.arguments, ToolInput).command
        return [ev.LocalCommand(*head, f"!{command or data.tool_name or ''}")]

    def _tool_result(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        """Copilot counts a command with a non-zero exit code as a success; here it failed."""
        result = _parse_result(data.result)
        if data.is_user_requested:
            content = _result_content(result, ToolError(str(data.error or "")))
            return [ev.LocalCommand(*head, None, text_of(content))]
        id_ = data.tool_call_id or ""
        events: list[ev.Event] = []
        code = data.shell_execution.exit_code if data.shell_execution is not None else None
        failed = data.success is False or code not in (0, None)
        error = data.error if isinstance(data.error, ToolError) else ToolError(data.error)
        if error.code == "denied":
            events.append(ev.PermissionDenied(*head, id_, None, error.message))
        content = _result_content(result, error)
        output = data.result if isinstance(result, ToolOutput) else None
        events.append(ev.ToolResult(*head, id_, failed, content, output, uuid=line.id))
        if failed and id_ in self._state.away:
            self._state.away.remove(id_)
            events.append(ev.TaskEnded(*head, id_, id_, "failed"))
        for path, change in self._file_changes(id_, data, result, failed):
            self._changed_paths.add(path)
            events.append(ev.FileChanged(*head, path, change, id_))
        return events

    def _file_changes(
        self, id_: str, data: EventData, result: ToolOutput | str | None, failed: bool
    ) -> list[tuple[str, str]]:
        """The files that a call changed: as listed, else (1.0.60) in the diff of its result."""
        is_editing = id_ in self._state.editing
        self._state.editing.discard(id_)
        if data.file_edits is not None:
            return [
                (edit.path, tables.CHANGE_KINDS.get(edit.kind, "modified"))
                for edit in data.file_edits
            ]
        if failed or not is_editing or not isinstance(result, ToolOutput):
            return []
        return tables.parse_diff_files(result.detailed_content or "")

    def _progress(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        return [ev.TaskProgress(*head, data.tool_call_id or "", data.tool_call_id, data.tool_name)]

    def _subagent_started(
        self, head: EventHead, data: EventData, line: EventLine
    ) -> list[ev.Event]:
        call = data.tool_call_id
        agent = line.agent_id or call or ""
        if call is not None:
            self._state.agents[agent] = call
        number, session, _, at = head
        return [
            ev.TaskStarted(
                *(number, session, None, at),
                task=agent,
                call=call,
                kind="subagent",
                agent_type=data.agent_type or data.agent_name,
                description=data.agent_description,
                background=data.execution_mode in ("background", "async") or None,
            )
        ]

    def _subagent_ended(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        status = "stopped" if data.cancelled else "completed"
        if line.type == "subagent.failed":
            status = "failed"
        number, session, _, at = head
        head = (number, session, None, at)
        return [ev.TaskEnded(*head, line.agent_id or "", data.tool_call_id, status)]

    def _hook(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        outcome = None
        if data.success is not None:
            outcome = "success" if data.success else "error"
        output = text_of(data.output) or None
        return [ev.Hook(*head, None, data.hook_type, None, outcome, output)]

    # -- errors and the end of a run -----------------------------------------------------------

    def _request_failed(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        text = data.error_message
        self._state.upstream = (data.retry_attempt, data.status_code, text or "")
        return [ev.Notice(*head, "request_failed", text)] if text else []

    def _retry(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        attempt, status, _ = self._state.upstream
        attempt = None if attempt is None else attempt + 1
        return [ev.Retry(*head, attempt, None, status, data.reason)]

    def _error(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        _, _, upstream_message = self._state.upstream
        kind = tables.classify_error(data.error_type, upstream_message)
        text = data.message or ""
        _, _, parent, _ = head
        if parent is None:
            self._state.error = (kind, data.status_code, text)
        return [ev.Failure(*head, kind, data.status_code, text)]

    def _abort(self, head: EventHead, data: EventData, line: EventLine) -> list[ev.Event]:
        """An interruption; a result with exit code 0 may follow."""
        _, _, parent, _ = head
        if parent is None:
            self._state.aborted = data.reason or "abort"
        return [ev.UserMessage(*head, "interrupted", data.reason or "")]

    def _result(self, line: EventLine, head: EventHead) -> list[ev.Event]:
        """The end of a run; Copilot waits for its background calls before."""
        state = self._state
        self.session = line.session_id
        number, _, _, at = head
        head = (number, line.session_id, None, at)
        events: list[ev.Event] = [
            ev.TaskEnded(*head, call, call, "completed") for call in sorted(state.away)
        ]
        duration = None
        if at is not None and state.begun is not None:
            duration = max(0, (at - state.begun) // MILLISECOND)
        ok = line.exit_code == 0 and state.aborted is None
        kind, status, text = (None, None, "") if ok else state.error or (None, None, "")
        result = ev.Result(
            *head,
            subtype="success" if ok else "error",
            is_error=not ok,
            text=state.text if ok else None,
            errors=(text,) if text else (),
            terminal_reason=None if state.aborted is None else f"aborted_{state.aborted}",
            api_error=kind,
            api_status=status,
            duration_ms=duration,
            duration_api_ms=self._api_duration_ms(line.usage),
        )
        self._result_event = result
        return [*events, result]

    def _api_duration_ms(self, totals: ResultUsage | None) -> int | None:
        """The reported time in requests if it is this run's, else the sum of its requests."""
        own = self._state.asking_ms
        reported = totals.total_api_duration_ms if totals is not None else None
        if self._state.answers and not self._state.asked:
            return reported  # 1.0.60: the stream has no requests, and the sum is the process's
        rounding = self._state.asked  # up to 1 ms per request
        return reported if reported is not None and abs(reported - own) <= rounding else own


def _prompt_id(data: EventData) -> str | None:
    """The id of a prompt, the same in stream and session file; 1.0.60 numbers no messages."""
    return data.message_id or data.interaction_id


def _totals_at(data: EventData) -> SessionTotals:
    metrics = data.model_metrics or {}
    counts = [model.requests or RequestCount() for model in metrics.values()]
    changes = data.code_changes or CodeChanges()
    return SessionTotals(
        models={name: _model_usage(model.usage) for name, model in metrics.items()},
        requests=sum(requests.count or 0 for requests in counts),
        files=changes.files_modified or [],
    )


def _model_usage(usage: UsageRecord | None) -> ev.ModelUsage:
    usage = usage or UsageRecord(cache_read_tokens=None, cache_write_tokens=None)
    cached = usage.cache_read_tokens
    written = usage.cache_write_tokens
    return ev.ModelUsage(
        input=uncached_input(usage.input_tokens, cached, written),
        cache_write=written,
        cache_read=cached,
        output=usage.output_tokens,
        reasoning=usage.reasoning_tokens,
    )


def _sum_usage(parts: Iterable[ev.ModelUsage]) -> ev.ModelUsage:
    usages = list(parts)
    return ev.ModelUsage(
        input=add_counters(*(usage.input for usage in usages)),
        cache_write=add_counters(*(usage.cache_write for usage in usages)),
        cache_read=add_counters(*(usage.cache_read for usage in usages)),
        output=add_counters(*(usage.output for usage in usages)),
        reasoning=add_counters(*(usage.reasoning for usage in usages)),
    )


def _subtract_usage(usage: ev.ModelUsage, before: ev.ModelUsage | None) -> ev.ModelUsage:
    if before is None:
        return usage
    return ev.ModelUsage(
        input=subtract_counters(usage.input, before.input),
        cache_write=subtract_counters(usage.cache_write, before.cache_write),
        cache_read=subtract_counters(usage.cache_read, before.cache_read),
        output=subtract_counters(usage.output, before.output),
        reasoning=subtract_counters(usage.reasoning, before.reasoning),
    )


def _parse_result(result: Raw) -> ToolOutput | str | None:
    """The result of a call: an object, or in older versions a text."""
    if bytes(result)[:1] == b"{":
        return decode_lenient(result, ToolOutput)
    return None if result is ev.NO_JSON else text_of(result)


def _result_content(result: ToolOutput | str | None, error: ToolError) -> Raw:
    if isinstance(result, ToolOutput):
        return result.content
    return Raw(encode(result or error.message))


def _request_id(usage: UsageRecord, line: int) -> str:
    """The request's number in its session: small model servers repeat their ids in every run."""
    place = usage.accounting or Accounting()
    if place.sequence is not None:
        return f"{place.source_session_id}/{place.sequence}"
    return usage.api_call_id or f"line {line}"


EventBuilder = Callable[[CopilotReader, EventHead, EventData, EventLine], list[ev.Event]]
_EVENT_BUILDERS: dict[str, EventBuilder] = {
    "session.start": CopilotReader._session_start,
    "session.resume": CopilotReader._session_start,
    "session.tools_updated": CopilotReader._model_selected,
    "session.usage_record": CopilotReader._usage,
    "session.shutdown": CopilotReader._shutdown,
    "model.call_finished": CopilotReader._request_finished,
    "session.compaction_complete": CopilotReader._compaction,
    "user.message": CopilotReader._prompt,
    "assistant.message": CopilotReader._text,
    "assistant.message_delta": CopilotReader._partial,
    "assistant.reasoning": CopilotReader._thinking,
    "tool.user_requested": CopilotReader._user_command,
    "tool.execution_start": CopilotReader._tool_call,
    "tool.execution_complete": CopilotReader._tool_result,
    "tool.execution_partial_result": CopilotReader._progress,
    "tool.execution_progress": CopilotReader._progress,
    "subagent.started": CopilotReader._subagent_started,
    "subagent.completed": CopilotReader._subagent_ended,
    "subagent.failed": CopilotReader._subagent_ended,
    "hook.start": CopilotReader._hook,
    "hook.end": CopilotReader._hook,
    "model.call_failure": CopilotReader._request_failed,
    "assistant.turn_retry": CopilotReader._retry,
    "session.error": CopilotReader._error,
    "abort": CopilotReader._abort,
}
