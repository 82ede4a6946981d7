"""A sink that turns the events of one file or run into ledger rows."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from .. import event as ev
from ..agents import Agent
from ..analysis.attribution import RunningWriters
from ..analysis.context import context_overhead
from ..analysis.usage import merge_counters
from ..codec.decode import decode_raw, text_of
from ..codec.redact import redact, redact_and_truncate
from ..event import OptionalStr, OptionalTime
from ..report import resolve_path
from .row_state import (
    EMPTY_THREAD,
    RowSinkState,
    ThreadState,
    decode_state,
    is_without_line_ids,
    names_lines,
    session_total,
    title_of,
)
from .rows import (
    UNKNOWN_CONTEXT,
    ChangeContext,
    DenialRow,
    FileChangeRows,
    LimitRow,
    ParsedRequest,
    ParsedSession,
    ParsedToolCall,
    RowBatch,
    SessionTotal,
    TextRow,
    hash_text,
    limit_row,
    part_id,
    stable_id,
    target_of,
    time_ms,
)

MAX_ERROR_CHARS = 500  # of a tool's error; the recording has the whole text
MAX_TEXT_CHARS = 200_000  # of one searchable message; longer ones are pasted files
EXTENDED_CONTEXT = 1_000_000  # the window of a model that exceeds its default one
ANONYMOUS_THREAD = "sidechain"  # subagents whose lines don't name their thread
# Why a model stops when its message is complete and the user is next.
FINAL_STOP_REASONS = ("end_turn", "stop_sequence", "max_tokens", "refusal")

_redact_name = lru_cache(1024)(redact)  # model and tool names: few, and repeated


class LedgerRowSink(Struct, eq=False):
    """Collects the rows of one file or run.

    `default_session` is the session of lines without one, `at` the time of events without one
    until an event has a time.
    """

    agent: Agent
    default_session: str
    at: int
    run: str | None = None
    needs_tool_output: bool = False
    id_namespace: str = ""  # set for a replayed recording: it repeats the ids of another run
    cwd: str | None = None
    start_folder: str | None = None  # for agents that don't report their folder
    sessions: dict[str, ParsedSession] = {}
    requests: dict[int, ParsedRequest] = {}
    calls: dict[int, ParsedToolCall] = {}
    denials: dict[int, DenialRow] = {}
    texts: dict[int, TextRow] = {}
    sent: list[TextRow] = []
    limits: list[LimitRow] = []
    totals: dict[int, SessionTotal] = {}
    _changes: FileChangeRows = field(default_factory=FileChangeRows)
    _has_event_time: bool = False
    _counts: dict[str, tuple[int, int]] = {}  # of the parts before
    _request_at: int = 0  # of the main thread's last one
    _unlisted: int = 0  # requests of which only the number is known
    _lacks_line_ids: bool = False  # the stream of this version names no lines
    _threads: dict[str, ThreadState] = {}
    _open_calls: dict[str, ParsedToolCall] = {}  # calls without a result
    _writers: RunningWriters[ParsedToolCall] = field(default_factory=RunningWriters)  # of these
    _calls_by_id: dict[str, ParsedToolCall] = {}

    # -- state between the parts of a file -------------------------------------------------------

    def state(self) -> bytes:
        counts = {
            name: (session.prompts, session.compactions) for name, session in self.sessions.items()
        }
        state = RowSinkState(
            threads=self._threads,
            calls=self._open_calls,
            cwd=self.cwd,
            at=self.at,
            counts={**self._counts, **counts},
            lacks_line_ids=self._lacks_line_ids,
            request_at=self._request_at,
            unlisted=self._unlisted,
        )
        return msgspec.json.encode(state)

    def restore(self, data: bytes) -> None:
        """Continue from the state after an earlier part of the file."""
        state = decode_state(data)
        self._threads = state.threads
        self._open_calls = state.calls
        self.cwd = state.cwd
        self.at = state.at
        self._counts = state.counts
        self._lacks_line_ids = state.lacks_line_ids
        self._request_at = state.request_at
        self._unlisted = state.unlisted
        self._calls_by_id.update(state.calls)
        for id_, call in state.calls.items():
            self._writers.add(id_, call)
        self._has_event_time = True

    def batch(self) -> RowBatch:
        """Return all rows."""
        for session in self.sessions.values():
            session.project = session.project or self.start_folder
            session.untimed = int(not self._has_event_time)
        self._changes.resolve_paths(self.cwd or self.start_folder)
        for row in self.sent:  # they name no session
            row.session = next(reversed(self.sessions), self.default_session)
        return RowBatch(
            agent=self.agent.name,
            sessions=self.sessions,
            requests=list(self.requests.values()),
            calls=list(self.calls.values()),
            changes=list(self._changes.rows.values()),
            denials=list(self.denials.values()),
            texts=list(self.texts.values()),
            sent=self.sent,
            limits=self.limits,
            totals=list(self.totals.values()),
            id_namespace=self.id_namespace,
        )

    # -- time and session ------------------------------------------------------------------------

    def add(self, events: Iterable[ev.Event]) -> None:
        methods = EVENT_METHODS
        for event in events:
            method = methods.get(type(event))
            if method is not None:
                method(self, event)

    def _advance_time(self, time: datetime | None) -> int:
        """Return the time of an event: its own if valid, else that of the event before it."""
        now = time_ms(time)
        if now is None:
            return self.at
        if not self._has_event_time:
            self._has_event_time = True
            if now < self.at:
                self._backdate(now)
        self.at = now
        return now

    def _backdate(self, first_time: int) -> None:
        """Move all rows to the first time of an event: they were not later."""
        for rows in (self.requests, self.calls, self.texts, self.denials, self._changes.rows):
            for row in rows.values():
                row.at = first_time
        for sent in self.sent:
            sent.at = first_time
        for session in self.sessions.values():
            if session.first_at is not None:
                session.first_at = first_time
                session.last_at = first_time

    def _touch_session(self, event: ev.Event, at: int | None = None) -> ParsedSession:
        """Return the event's session; `at` extends its active time."""
        name = event.session or self.default_session
        session = self.sessions.get(name)
        if session is None:
            prompts, compactions = self._counts.get(name, (0, 0))
            session = ParsedSession(project=self.cwd, prompts=prompts, compactions=compactions)
            self.sessions[name] = session
        if at is not None:
            if session.first_at is None or at < session.first_at:
                session.first_at = at
            if session.last_at is None or at > session.last_at:
                session.last_at = at
        return session

    # -- events ----------------------------------------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        if names_lines(self.agent) and is_without_line_ids(event.agent_version):
            self._lacks_line_ids = True
        session = self._touch_session(event, self._advance_time(event.at))
        self.cwd = self.cwd or event.cwd
        session.agent_version = (
            session.agent_version or _redact_name(event.agent_version or "") or None
        )
        session.project = session.project or event.cwd
        session.model = session.model or _redact_name(event.model or "") or None
        session.repository = session.repository or event.repository
        session.branch = session.branch or event.branch
        window = event.context_window
        model = event.model or session.model or ""
        if window and event.parent is None and not self.agent.guesses_window(model, window):
            session.context_limit = window
            session.context_limit_source = "reported"

    def usage(self, event: ev.Usage, /) -> None:
        at = self._advance_time(event.at)
        thread = self._threads.get(event.parent or "", EMPTY_THREAD)
        is_same_message = event.message is not None and thread.message == event.message
        if is_same_message and (event.uuid is None or thread.has_line_id):
            id_ = thread.request
            thread.is_ended = event.stop_reason in FINAL_STOP_REASONS
        else:
            id_ = self._begin_request(event, at, thread)

        request = self.requests.get(id_)
        if request is None:
            request = self.requests[id_] = ParsedRequest(
                id=id_,
                session=event.session or self.default_session,
                run=self.run,
                message=event.message,
                parent=event.parent,
                model=_redact_name(event.model or "unknown"),
                at=at,
                input=event.input or 0,
                cache_write=event.cache_write or 0,
                cache_read=event.cache_read or 0,
                output=event.output or 0,
                reasoning=event.reasoning or 0,
                cache_write_1h=event.cache_write_1h or 0,
                final=event.final,
            )
        else:  # another report of the same request: counters only grow
            request.final = request.final or event.final
            for name, count in merge_counters(request, event).items():
                setattr(request, name, count)
            if request.model == "unknown":
                request.model = _redact_name(event.model or "unknown")

        session = self._touch_session(event, at)
        if event.parent is not None:
            return
        self._request_at = request.at
        if request.model != "unknown":
            session.model = request.model
        session.stop = event.stop_reason or session.stop
        if None in (event.input, event.cache_write, event.cache_read):
            return  # the size of the context is unknown, not 0
        used = request.input + request.cache_write + request.cache_read
        session.context_used = used
        session.context_peak = max(used, session.context_peak or 0)
        limit = self.agent.context_window(request.model)
        if limit is not None and session.context_limit_source is None:
            session.context_limit = limit if used <= limit else max(limit, EXTENDED_CONTEXT)

    def _begin_request(self, event: ev.Usage, at: int, thread: ThreadState) -> int:
        """Make a new request the current one of its thread and return its id."""
        message = event.message
        parent = event.parent or ""
        line_id = "" if parent == ANONYMOUS_THREAD else event.uuid or ""
        if message is not None and (
            self._lacks_line_ids or (not line_id and names_lines(self.agent))
        ):
            line_id = f"{event.input} {event.cache_write} {event.cache_read}"
        name = message or (event.session, event.line, at)
        id_ = hash_text(f"{self.agent.name}{self.id_namespace} {name} {line_id}")
        if message is not None and thread.message == message:
            # The streamed beginning of this message, now with its final id.
            streamed = self.requests.pop(thread.request, None)
            if streamed is not None:
                streamed.id = id_
                self.requests[id_] = streamed
        self._threads[parent] = ThreadState(
            message=message,
            request=id_,
            has_line_id=event.uuid is not None,
            is_ended=event.stop_reason in FINAL_STOP_REASONS,
        )
        return id_

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
        input_: Raw,
        /,
    ) -> None:
        if id_ in self._calls_by_id:
            return
        now = self._advance_time(at)
        thread = self._threads.get(parent or "", EMPTY_THREAD)
        if thread.message is None or thread.message != message:
            name_of_request = f"{self.agent.name}{self.id_namespace} {message or session} {line}"
            thread = ThreadState(message, hash_text(name_of_request))
        thread.calls += 1
        call = ParsedToolCall(
            id=part_id(thread.request, 2 * thread.calls),
            call=id_,
            session=session or self.default_session,
            run=self.run,
            request=thread.request,
            parent=parent,
            name=_redact_name(name),
            kind=kind,
            target=target_of(input_),
            at=now,
        )
        self.calls[call.id] = call
        self._open_calls[id_] = call
        self._writers.add(id_, call)
        self._calls_by_id[id_] = call

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
        call = self._open_calls.pop(id_, None)
        if call is not None:
            self._writers.discard(id_)
            call.ok = True
            self.calls[call.id] = call
            if at is not None:
                call.duration_ms = max(0, self._advance_time(at) - call.at)

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
        call = self._open_calls.get(id_)
        self.tool_result(line, session, parent, at, id_, content, output)
        if call is not None:
            call.ok = False
            call.error = redact_and_truncate(text_of(content), MAX_ERROR_CHARS)

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
        if not text:
            return
        now = self._advance_time(at)
        text = redact_and_truncate(text, MAX_TEXT_CHARS)
        thread = self._threads.get(parent or "")
        if thread is None:
            id_ = hash_text(f"answer {session} {line} {text}")
        else:
            thread.texts += 1
            id_ = part_id(thread.request, 2 * thread.texts + 1)
        self.texts[id_] = TextRow(
            id=id_,
            session=session or self.default_session,
            run=self.run,
            parent=parent,
            role="answer",
            at=now,
            text=text,
        )

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
        """Thinking is not stored."""

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        head = (event.line, event.session, event.parent, event.at)
        self.tool_call(*head, event.id, event.name, event.kind, event.message, event.input)

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        result = self.tool_error if event.is_error else self.tool_result
        head = (event.line, event.session, event.parent, event.at)
        call = self._open_calls.get(event.id)
        result(*head, event.id, event.content, event.output)
        if call is not None and event.duration_ms:  # 0 is rounded
            call.duration_ms = event.duration_ms

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        call = self._calls_by_id.get(event.call or "")
        session = event.session or self.default_session
        tool = _redact_name(event.tool or (call.name if call is not None else "")) or None
        if call is not None:
            call.denied = True
            self.calls[call.id] = call
        subject = call.id if call is not None else (session, event.call, event.tool)
        id_ = stable_id("denial", subject)
        rule = self._allow_rule(event, tool, call)
        row = DenialRow(
            id=id_,
            session=session,
            run=self.run,
            call=event.call,
            tool=tool,
            reason=redact_and_truncate(event.reason, MAX_ERROR_CHARS) if event.reason else None,
            rule=redact(rule) if rule else None,
            at=self._advance_time(event.at),
        )
        self.denials.setdefault(id_, row)

    def _allow_rule(
        self, event: ev.PermissionDenied, tool: str | None, call: ParsedToolCall | None
    ) -> str | None:
        """Return the rule that would have allowed the call."""
        if event.input is ev.NO_JSON and call is not None and call.target:
            input_ = {"command": call.target, "file_path": call.target}
            return self.agent.allow_rule(call.name, input_, self.cwd, event.reason or call.error)
        if tool is None:
            return None
        reason = event.reason or (call.error if call is not None else None)
        return self.agent.allow_rule(tool, decode_raw(event.input), self.cwd, reason)

    def _on_file_changed(self, event: ev.FileChanged) -> None:
        at = self._advance_time(event.at)
        # Changes observed on disk have no session: take the current one.
        session = event.session or next(reversed(self.sessions), self.default_session)
        own_call = self._calls_by_id.get(event.call or "")
        call = own_call if event.source == "tool" else self._writers.only()
        path, absolute_path, is_inside = resolve_path(event.path, self.cwd or self.start_folder)
        context = ChangeContext(
            session=session,
            run=self.run,
            at=at,
            path=path,
            absolute_path=absolute_path,
            is_inside=is_inside,
        )
        self._changes.add(event, context, call)

    def _on_text(self, event: ev.Text) -> None:
        if not event.synthetic:
            self.text(event.line, event.session, event.parent, event.at, event.message, event.text)

    def _on_user_message(self, event: ev.UserMessage) -> None:
        if event.kind == "sent":
            self._add_sent(event)
            return
        self._end_message(event.parent)
        if event.kind != "prompt" or not event.text:
            return
        text = self._add_user_text(event, "prompt", event.text)
        if event.parent is None:
            session = self._touch_session(event, self.at)
            session.prompts += 1
            if session.title is None and text[:1] != "<":
                session.title = title_of(text)

    def _on_local_command(self, event: ev.LocalCommand) -> None:
        self._end_message(event.parent)
        text = event.command or "\n".join(filter(None, (event.output, event.error)))
        if text.strip():
            self._add_user_text(event, "command", text)
            self._touch_session(event, self.at)

    def _end_message(self, parent: str | None) -> None:
        """The next request is a new one, even with the same name."""
        if self._threads.get(parent or "", EMPTY_THREAD).is_ended:
            del self._threads[parent or ""]

    def _add_user_text(self, event: ev.Event, role: str, text: str) -> str:
        """Add a text to those that can be searched; return it without secrets."""
        at = self._advance_time(event.at)
        text = redact_and_truncate(text, MAX_TEXT_CHARS)
        id_ = hash_text(f"{role} {at} {text}")
        self.texts[id_] = TextRow(
            id=id_,
            session=event.session or self.default_session,
            run=self.run,
            parent=event.parent,
            role=role,
            at=at,
            text=text,
        )
        return text

    def _add_sent(self, event: ev.UserMessage) -> None:
        at = self._advance_time(event.at)
        text = redact_and_truncate(event.text, MAX_TEXT_CHARS)
        self.sent.append(TextRow(0, self.default_session, self.run, None, "prompt", at, text))

    def _on_compaction(self, event: ev.Compaction) -> None:
        session = self._touch_session(event)
        session.compactions += 1
        session.context_used = UNKNOWN_CONTEXT if event.after is None else event.after

    def _on_context_usage(self, event: ev.ContextUsage) -> None:
        if event.parent is None:
            session = self._touch_session(event, self._advance_time(event.at))
            session.overhead = msgspec.json.encode(context_overhead(event)).decode()
            if session.context_used in (None, UNKNOWN_CONTEXT):
                session.context_used = event.used
            if session.context_limit is None:
                session.context_limit = self.agent.context_window(event.model or "")

    def _on_cost(self, event: ev.CostState) -> None:
        if event.is_earlier or event.of_run:
            return
        session = self._touch_session(event)
        if event.cost_nano is not None:
            session.reported_nano = event.cost_nano
        if event.models and self.default_session:  # not of a run, whose report has its total
            self._add_session_total(event)

    def _on_notice(self, event: ev.Notice) -> None:
        self._unlisted += event.kind == "request"

    def _on_result(self, event: ev.Result) -> None:
        if event.index is not None and event.models and event.session:
            self._add_session_total(event)

    def _add_session_total(self, event: ev.CostState | ev.Result) -> None:
        at = self._request_at or self.at  # a scan of the requests alone knows no other time
        session = event.session or self.default_session
        total = session_total(self.agent.name, event, session, at, self._unlisted or None)
        self.totals[total.id] = total

    def _on_limit(self, event: ev.RateLimit) -> None:
        at = time_ms(event.at)
        if at is None or self.id_namespace:  # without a time, or replayed: not about this account
            return
        self.limits.append(
            limit_row(
                self.agent.name,
                at,
                kind=event.kind,
                status=event.status,
                utilization=event.utilization,
                resets_at=event.resets_at,
                source="event",
            )
        )

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            session = self._touch_session(event, self._advance_time(event.at))
            session.stop = f"error: {event.kind or 'unknown'}"


EVENT_METHODS: dict[type[ev.Event], Callable[[LedgerRowSink, Any], None]] = {
    ev.Started: LedgerRowSink._on_started,
    ev.Usage: LedgerRowSink.usage,
    ev.ToolCall: LedgerRowSink._on_tool_call,
    ev.ToolResult: LedgerRowSink._on_tool_result,
    ev.PermissionDenied: LedgerRowSink._on_denied,
    ev.FileChanged: LedgerRowSink._on_file_changed,
    ev.Text: LedgerRowSink._on_text,
    ev.UserMessage: LedgerRowSink._on_user_message,
    ev.LocalCommand: LedgerRowSink._on_local_command,
    ev.Compaction: LedgerRowSink._on_compaction,
    ev.ContextUsage: LedgerRowSink._on_context_usage,
    ev.CostState: LedgerRowSink._on_cost,
    ev.Notice: LedgerRowSink._on_notice,
    ev.Result: LedgerRowSink._on_result,
    ev.Failure: LedgerRowSink._on_failure,
    ev.RateLimit: LedgerRowSink._on_limit,
}
