"""The lines of `copilot --output-format json`, and those of the file that it keeps: one line to events.

It holds only what joins lines. It never takes the exit code 0 for success: what was refused is told call by call.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_first_object, decode_lenient, decoder
from . import tables as words
from . import wire as ln

_decode_line = decoder(ln.EventLine).decode
Odd = Callable[[bytes, int], list[ev.Event]]
EventHead = tuple[int, str | None, str | None, datetime | None]
MILLISECOND = timedelta(milliseconds=1)


class CopilotReaderState(Struct):
    """What joins lines."""

    session: str | None = None  # of the file that it keeps
    version: str | None = None
    agents: dict[str, str] = field(
        default_factory=dict
    )  # the id of a subagent -> the call that started it
    window: int | None = None
    model: str | None = None
    prompts: list[str] = field(default_factory=list)
    text: str | None = None
    error: tuple[str | None, int | None, str] | None = None
    upstream: tuple[int | None, int | None, str] = (
        None,
        None,
        "",
    )  # the last request that failed: try, status, words
    aborted: str | None = None  # it was cut off, and why
    away: list[str] = field(default_factory=list)  # calls in the background
    begun: datetime | None = None
    asking_ms: int = 0  # spent in requests that were answered
    asked: int = 0


class CopilotReader:
    """Turns the lines of one run, or of the file of a session, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._state = CopilotReaderState()

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(decode_lenient(data, ln.EventLine), data, number, at)

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines of the same file another time."""
        return encode(self._state)

    def restore(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._state = decoder(CopilotReaderState).decode(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Its stderr says nothing of what it did."""
        return []

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What each request used, from the file of the session: of the run that was asked what this one was asked."""
        kept, mine, run = CopilotReader(), False, list[ev.Event]()
        for data in lines:
            line = decode_first_object(data, ln.EventLine)
            if line is None or line.data is None:
                continue
            if line.type in ("session.start", "session.resume"):
                if mine:
                    break
                run.clear()
            mine = mine or (
                line.type == "user.message" and line.data.message_id in self._state.prompts
            )
            told = [
                event
                for event in kept._events(line, data, 0, None)
                if isinstance(event, ev.Started | ev.Usage)
            ]
            run += [_as_stream_event(event) for event in told]
        return run if mine else []

    def _events(
        self, line: ln.EventLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        state, held = self._state, line.data or ln.EventData()
        at = line.timestamp or at
        state.begun = state.begun or at
        parent = held.parent_tool_call_id or (
            state.agents.get(line.agent_id, line.agent_id) if line.agent_id is not None else None
        )
        head: EventHead = (number, self.session or state.session, parent, at)
        if line.type == "result" and line.data is None:
            return self._result(line, head)
        make = _EVENT_BUILDERS.get(line.type)
        if make is not None and line.data is not None:
            return make(self, head, held, line)
        if line.type in words.IGNORED_EVENT_TYPES:
            return []
        if line.type in words.NOTICE_EVENT_TYPES:
            kind = held.info_type or held.warning_type or line.type.partition(".")[2]
            return [
                ev.Notice(
                    *head, kind, held.message or held.content or held.reason or held.new_model
                )
            ]
        return [ev.Unknown(*head, line.type or "no type", data)]

    # -- who and where -------------------------------------------------------------------------------------

    def _session_start(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        """A run begins in the file of a session."""
        state = self._state
        state.session = data.session_id or state.session
        state.version, state.window = data.copilot_version or state.version, None
        state.model = data.selected_model or state.model
        cwd = data.context.cwd if data.context is not None else None
        number, _, parent, at = head
        return [
            ev.Started(
                number, state.session, parent, at, state.version, state.model, cwd, transcript=True
            )
        ]

    def _model_selected(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        return [ev.Started(*head, None, data.model)] if head[2] is None else []

    # -- what it used ------------------------------------------------------------------------------------------

    def _usage(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        usage, state = data.usage or ln.RequestUsage(), self._state
        place = usage.accounting or ln.Accounting()
        name = f"{place.source_session_id}/{place.sequence}"  # small servers give the same names to the answers of every run
        if place.sequence is None:
            name = usage.api_call_id or f"line {head[0]}"
        cached, written, all_ = (
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.input_tokens,
        )
        new = (
            None
            if all_ is None or cached is None or written is None
            else max(0, all_ - cached - written)
        )
        counts = (new, written, cached, usage.output_tokens, usage.reasoning_tokens, 0)
        events: list[ev.Event] = [
            ev.Usage(
                *head,
                name,
                usage.model,
                *counts,
                True,
                words.stop_reason_of(usage.finish_reason),
                name,
            )
        ]
        if (
            usage.max_prompt_tokens is not None
            and usage.max_prompt_tokens != state.window
            and head[2] is None
        ):
            state.window = usage.max_prompt_tokens
            events.append(ev.Started(*head, None, usage.model, context_window=state.window))
        return events

    def _request_finished(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        if data.outcome == "success":
            self._state.asked += 1
            self._state.asking_ms += data.dispatch_duration_ms or 0
        return []

    def _compaction(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        if data.success is False:
            return [ev.Notice(*head, "compaction_failed", data.reason)]
        return [
            ev.Compaction(*head, "auto", data.pre_compaction_tokens, data.post_compaction_tokens)
        ]

    # -- what was said -------------------------------------------------------------------------------------------

    def _prompt(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        self._state.aborted = None
        if data.message_id is not None:
            self._state.prompts.append(data.message_id)
        return [ev.UserMessage(*head, "prompt", data.content or "")]

    def _text(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        if not data.content:
            return []
        if head[2] is None:
            self._state.text = data.content
        return [ev.Text(*head, data.api_call_id, data.content)]

    def _partial(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        return [ev.Partial(*head, data.delta_content)] if data.delta_content else []

    def _thinking(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        return [ev.Thinking(*head, None, data.content or "")]

    # -- calls -----------------------------------------------------------------------------------------------------

    def _tool_call(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        name, id_ = data.tool_name or "", data.tool_call_id or ""
        asked = (
            decode_lenient(data.arguments, ln.ToolInput)
            if data.arguments is not ev.NO_JSON
            else ln.ToolInput()
        )
        kind = words.tool_kind(name, data.mcp_server_name)
        away = kind == "shell" and asked.mode == "async" and asked.detach is not True
        if away:
            self._state.away.append(id_)
        return [
            ev.ToolCall(
                *head,
                id_,
                name,
                kind,
                data.api_call_id,
                data.arguments,
                away,
                name in words.USER_INPUT_TOOLS,
            )
        ]

    def _tool_result(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        """A command that ends with a code is a success to Copilot: it did run. Here it failed, as with every agent."""
        id_, events = data.tool_call_id or "", list[ev.Event]()
        code = data.shell_execution.exit_code if data.shell_execution is not None else None
        failed = data.success is False or code not in (0, None)
        error = data.error if isinstance(data.error, ln.ToolError) else ln.ToolError(data.error)
        if error.code == "denied":
            events.append(ev.PermissionDenied(*head, id_, None, error.message))
        content = (
            data.result.content
            if isinstance(data.result, ln.ToolOutput)
            else Raw(encode(data.result or error.message))
        )
        events.append(ev.ToolResult(*head, id_, failed, content))
        if failed and id_ in self._state.away:
            self._state.away.remove(id_)
            events.append(ev.TaskEnded(*head, id_, id_, "failed"))
        for edit in data.file_edits or ():
            events.append(
                ev.FileChanged(*head, edit.path, words.CHANGE_KINDS.get(edit.kind, "modified"), id_)
            )
        return events

    def _progress(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        return [ev.TaskProgress(*head, data.tool_call_id or "", data.tool_call_id, data.tool_name)]

    def _subagent_started(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        number, session, _, at = head
        agent, call = line.agent_id or data.tool_call_id or "", data.tool_call_id
        if call is not None:
            self._state.agents[agent] = call
        away = data.execution_mode in ("background", "async") or None
        about = (data.agent_type or data.agent_name, data.agent_description, away)
        return [ev.TaskStarted(number, session, None, at, agent, call, "subagent", *about)]

    def _subagent_ended(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        number, session, _, at = head
        status = (
            "failed"
            if line.type == "subagent.failed"
            else "stopped"
            if data.cancelled
            else "completed"
        )
        return [
            ev.TaskEnded(number, session, None, at, line.agent_id or "", data.tool_call_id, status)
        ]

    def _hook(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        outcome = None if data.success is None else "success" if data.success else "error"
        return [ev.Hook(*head, None, data.hook_type, None, outcome)]

    # -- ends ------------------------------------------------------------------------------------------------------

    def _request_failed(
        self, head: EventHead, data: ln.EventData, line: ln.EventLine
    ) -> list[ev.Event]:
        self._state.upstream = (data.retry_attempt, data.status_code, data.error_message or "")
        return []

    def _retry(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        tried, status, _ = self._state.upstream
        return [ev.Retry(*head, None if tried is None else tried + 1, None, status, data.reason)]

    def _error(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        kind, text = (
            words.classify_error(data.error_type, self._state.upstream[2]),
            data.message or "",
        )
        if head[2] is None:
            self._state.error = (kind, data.status_code, text)
        return [ev.Failure(*head, kind, data.status_code, text)]

    def _abort(self, head: EventHead, data: ln.EventData, line: ln.EventLine) -> list[ev.Event]:
        """It was cut off; a result that follows may still say 0."""
        if head[2] is None:
            self._state.aborted = data.reason or "abort"
        return [ev.UserMessage(*head, "interrupted", data.reason or "")]

    def _result(self, line: ln.EventLine, head: EventHead) -> list[ev.Event]:
        """The end of a run. It waits for what it sent to the background; its own times count over the whole session."""
        state, number, at = self._state, head[0], head[3]
        self.session = line.session_id
        head = (number, line.session_id, None, at)
        events: list[ev.Event] = [
            ev.TaskEnded(*head, call, call, "completed") for call in state.away
        ]
        spent = (
            None if at is None or state.begun is None else max(0, (at - state.begun) // MILLISECOND)
        )
        kind, status, text = state.error or (None, None, "")
        good = line.exit_code == 0 and state.aborted is None
        end = ev.Result(
            *head,
            "success" if good else "error",
            not good,
            state.text if good else None,
            () if good or not text else (text,),
            terminal_reason=f"aborted_{state.aborted}" if state.aborted is not None else None,
            api_error=None if good else kind,
            api_status=None if good else status,
            duration_ms=spent,
            duration_api_ms=self._api_duration_ms(line.usage),
        )
        return [*events, end]

    def _api_duration_ms(self, totals: ln.ResultUsage | None) -> int:
        """The time spent in requests: as the agent sums it up where that is this run's, else the sum of what was seen."""
        told, seen = (
            totals.total_api_duration_ms if totals is not None else None,
            self._state.asking_ms,
        )
        return told if told is not None and abs(told - seen) <= self._state.asked else seen


def _as_stream_event(event: ev.Event) -> ev.Event:
    """An event of the file, as one of the stream."""
    return replace(event, transcript=False) if isinstance(event, ev.Started) else event


_EVENT_BUILDERS: dict[
    str, Callable[[CopilotReader, EventHead, ln.EventData, ln.EventLine], list[ev.Event]]
] = {
    "session.start": CopilotReader._session_start,
    "session.resume": CopilotReader._session_start,
    "session.tools_updated": CopilotReader._model_selected,
    "session.usage_record": CopilotReader._usage,
    "model.call_finished": CopilotReader._request_finished,
    "session.compaction_complete": CopilotReader._compaction,
    "user.message": CopilotReader._prompt,
    "assistant.message": CopilotReader._text,
    "assistant.message_delta": CopilotReader._partial,
    "assistant.reasoning": CopilotReader._thinking,
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


_USAGE_MARKERS = (
    b'"session.usage_record"',
    b'"session.start"',
    b'"session.resume"',
    b'"subagent.started"',
)  # what a sum must know
_TRANSCRIPT_ONLY_TYPES = frozenset(
    {
        "session.start",
        "session.resume",
        "session.usage_record",
        "session.shutdown",
        "system.message",
    }
)


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folder below which the files of its sessions lie."""
    root = (environment.get("COPILOT_HOME") or f"{home}/.copilot").rstrip("/")
    return [f"{root}/session-state"]


def transcript_pattern(session: str) -> str:
    """The file of a session, below the folder."""
    return f"{session}/events.jsonl"


class _LineProbe(Struct, gc=False):
    type: str = ""


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a file that it keeps: these open with the start of the session, which no stream tells."""
    return decode_lenient(line, _LineProbe).type in _TRANSCRIPT_ONLY_TYPES


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a file tells of, and where it began. Most of its bytes are of neither."""
    reader = CopilotReader()
    for number, data in enumerate(lines, 1):
        if not any(mark in data for mark in _USAGE_MARKERS):
            continue
        try:
            found = reader.read(data, number)
        except DECODE_ERRORS:
            found = _read_lenient(reader, data, number)
        yield from (event for event in found if isinstance(event, ev.Usage | ev.Started))


def _read_lenient(reader: CopilotReader, data: bytes, number: int) -> list[ev.Event]:
    try:
        return reader.read_lenient(data, number)
    except DECODE_ERRORS:
        return []
