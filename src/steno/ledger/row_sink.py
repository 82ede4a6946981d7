"""What a tool call works on, as one line that can be stored: a path, a command, a pattern. Pure."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from .. import event as ev
from ..agents import Agent
from ..analysis.attribution import ATTRIBUTION_WINDOW_MS, EXPLICIT_FILE_KINDS, READ_ONLY_KINDS
from ..codec.decode import DECODE_ERRORS, decode_raw, decoder, text_of
from ..codec.redact import redact, redact_and_truncate
from ..event import OptionalStr, OptionalTime
from ..report import resolve_path
from .rows import (
    MAX_TIME_MS,
    UNKNOWN_CONTEXT,
    ParsedRequest,
    ParsedSession,
    ParsedToolCall,
    RowBatch,
    hash_text,
    part_id,
    stable_id,
)

MAX_TARGET_CHARS = 300  # characters of what a call worked on


class _TargetFields(Struct, gc=False):
    command: str | None = None
    file_path: str | None = None
    notebook_path: str | None = None
    pattern: str | None = None
    url: str | None = None
    query: str | None = None
    description: str | None = None
    path: str | None = None


_decode_target = decoder(_TargetFields).decode


def target_of(given: Raw) -> str | None:
    """What a call works on, as one line that can be stored."""
    if given is ev.NO_JSON:
        return None
    try:
        asked = _decode_target(given)
    except DECODE_ERRORS:
        return None
    found = (
        asked.file_path
        or asked.command
        or asked.notebook_path
        or asked.pattern
        or asked.url
        or asked.query
    )
    found = found or asked.description or asked.path
    return redact_and_truncate(found, MAX_TARGET_CHARS) if found else None


Row = tuple[Any, ...]
SessionAndRun = tuple[str, str | None]  # session and run
CALL_INDEX, PATH_INDEX, CHANGE_INDEX = 3, 4, 6  # where they stand in a row


class FileChangeRows:
    """The changes of one file or run."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._reported_at: dict[
            str, int
        ] = {}  # when a tool said last that a file changed, by its path
        self._observed: dict[
            str, dict[int, int]
        ] = {}  # rows of what the disk showed of a file, each with its time

    def backdate(self, now: int) -> None:
        """They were not later than this, whatever was taken for their time."""
        self.rows = {id_: (*row[:-1], now) for id_, row in self.rows.items()}

    def add(
        self,
        event: ev.FileChanged,
        at: int,
        whose: SessionAndRun,
        call: ParsedToolCall | None,
        placed: tuple[str, str, bool],
    ) -> None:
        """A file changed. `call`: its own, or the one that runs; `placed`: see `paths.placed`."""
        path, absolute, inside = placed
        about = (redact(path), int(inside), event.change, event.source, at)
        if event.source == "tool":
            self._add_reported(event, whose, call, absolute, about)
        else:
            self._add_observed(
                event, whose, None if event.source == "git" else call, absolute, about
            )

    def _add_reported(
        self,
        event: ev.FileChanged,
        whose: SessionAndRun,
        call: ParsedToolCall | None,
        absolute: str,
        about: Row,
    ) -> None:
        path, *_, at = about
        self._reported_at[absolute] = at
        since = call.at if call is not None else at
        for id_ in [
            id_
            for id_, seen in self._observed.get(absolute, {}).items()
            if self._belongs_to_call(id_, seen, since)
        ]:
            del (
                self._observed[absolute][id_],
                self.rows[id_],
            )  # the disk showed it while the call ran: one change, told by two
        if call is None:
            id_ = stable_id("change", stable_id(whose[1] or whose[0], at), absolute, event.change)
        else:
            id_ = part_id(call.id, -1)
            if id_ in self.rows and self.rows[id_][PATH_INDEX] != path:
                id_ = stable_id("change", call.id, absolute)  # a call that changes several files
        self.rows.setdefault(id_, (id_, *whose, event.call, *about))

    def _belongs_to_call(self, id_: int, seen: int, since: int) -> bool:
        """Whether what the disk showed is the work of a call; an agent's line may be read a little after what it tells of."""
        return seen >= (
            since if self.rows[id_][CALL_INDEX] is not None else since - ATTRIBUTION_WINDOW_MS
        )

    def _add_observed(
        self,
        event: ev.FileChanged,
        whose: SessionAndRun,
        call: ParsedToolCall | None,
        absolute: str,
        about: Row,
    ) -> None:
        """The disk shows a change: it is that of the one call that runs. What a tool has just told is known already."""
        by_git, told, at = event.source == "git", self._reported_at.get(absolute), about[-1]
        if (told is not None and (by_git or at - told <= ATTRIBUTION_WINDOW_MS)) or (
            by_git and self._observed.get(absolute)
        ):
            return
        name = call.call if call is not None else None
        id_ = stable_id("seen", whose[1] or whose[0], name, absolute)
        rows, known = self._observed.setdefault(absolute, {}), self.rows.get(id_)
        if event.change == "deleted" and any(
            self.rows[row][CHANGE_INDEX] == "created" for row in rows
        ):
            for row in rows:
                del self.rows[row]  # it came and went: nothing is left of it
            rows.clear()
        elif known is None:
            self.rows[id_], rows[id_] = (id_, *whose, name, *about), at
        elif known[CHANGE_INDEX] != "created":
            change = (
                "modified"
                if (known[CHANGE_INDEX], event.change) == ("deleted", "created")
                else event.change
            )
            self.rows[id_] = (*known[:CHANGE_INDEX], change, *known[CHANGE_INDEX + 1 :])


_redact_name = lru_cache(1024)(redact)  # the names of models and tools: few, told again and again
MAX_TITLE_CHARS = 200  # characters of the first prompt that name a session
MAX_ERROR_CHARS = 500  # characters of why a call failed; the tape or transcript holds the whole
MAX_TEXT_CHARS = (
    200_000  # characters of one message that can be searched: longer ones are pasted files
)
ANONYMOUS_THREAD = "sidechain"  # the thread of subagents whose lines do not say which one they are


class ThreadState(Struct, array_like=True, gc=False):
    """Where a thread of the conversation is."""

    message: str | None = None
    request: int = 0
    has_line_id: bool = False  # its number is made of a line's own name
    is_ended: bool = False  # the model said that it has nothing more to say
    calls: int = 0  # of the message so far
    texts: int = 0


EMPTY_THREAD = ThreadState()
# Why a model stops when its message is whole and the next one to speak is a person.
FINAL_STOP_REASONS = ("end_turn", "stop_sequence", "max_tokens", "refusal")


class RowSinkState(Struct):
    """What joins the rows of one reading with those of the next: see `Rows`."""

    threads: dict[str, ThreadState]
    calls: dict[str, ParsedToolCall]
    cwd: str | None
    at: int


_decode_state = decoder(RowSinkState).decode


class LedgerRowSink:
    """Gathers the rows of one file or run."""

    needs_tool_output = False

    def __init__(self, agent: Agent, fallback: str, at: int, run: str | None = None) -> None:
        self.agent, self.run = agent, run
        self.default_session = fallback  # the session of lines that name none
        self.id_namespace = ""  # of a recording that is played: it repeats the names of another run
        self.at = at  # of events that carry no time: of the event before them, else of the file
        self._has_event_time = False  # an event carried one
        self.cwd: str | None = None
        self.start_folder: str | None = (
            None  # the folder it was started in, for an agent that does not say where it works
        )
        self.sessions: dict[str, ParsedSession] = {}
        self.requests: dict[int, ParsedRequest] = {}
        self.calls: dict[int, ParsedToolCall] = {}
        self._changes = FileChangeRows()
        self.denials: dict[int, tuple[Any, ...]] = {}
        self.texts: dict[int, tuple[Any, ...]] = {}
        self._threads: dict[str, ThreadState] = {}
        self._open_calls: dict[str, ParsedToolCall] = {}  # calls without an answer
        self._calls_by_id: dict[str, ParsedToolCall] = {}

    # -- in parts ------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """What must be remembered to go on with the next part of the same file."""
        return msgspec.json.encode(RowSinkState(self._threads, self._open_calls, self.cwd, self.at))

    def restore(self, state: bytes) -> None:
        """Remember what `state` said."""
        kept = _decode_state(state)
        self._threads, self._open_calls, self.cwd, self.at = (
            kept.threads,
            kept.calls,
            kept.cwd,
            kept.at,
        )
        self._calls_by_id.update(kept.calls)
        self._has_event_time = True

    def batch(self, whole: bool = True) -> RowBatch:
        """All that was gathered; `whole`: from the beginning of its file on."""
        for session in self.sessions.values():
            session.project = session.project or self.start_folder
        return RowBatch(
            self.agent.name,
            self.sessions,
            list(self.requests.values()),
            [self._call_row(call) for call in self.calls.values()],
            list(self._changes.rows.values()),
            list(self.denials.values()),
            list(self.texts.values()),
            whole,
        )

    def _call_row(self, call: ParsedToolCall) -> tuple[Any, ...]:
        ok = None if call.ok is None else int(call.ok)
        whose = (
            call.id,
            call.call,
            self.agent.name,
            call.session,
            call.run,
            call.request,
            call.parent,
        )
        what = (
            call.name,
            call.kind,
            call.target,
            call.at,
            call.duration_ms,
            ok,
            int(call.denied),
            call.error,
        )
        return whose + what

    # -- events in -----------------------------------------------------------------------------------------------

    def add(self, found: Iterable[ev.Event]) -> None:
        """Take in events."""
        takers = EVENT_METHODS
        for event in found:
            taker = takers.get(type(event))
            if taker is not None:
                taker(self, event)

    def _advance_time(self, at: datetime | None) -> int:
        if at is not None:
            now = int(at.timestamp() * 1000)
            if 0 <= now < MAX_TIME_MS:  # else it is not known
                if not self._has_event_time:
                    self._backdate(now)
                self.at = now
        return self.at

    def _backdate(self, now: int) -> None:
        """The first event that carries a time. What came before it was not later, whatever the time of the file is."""
        self._has_event_time = True
        if now >= self.at:
            return
        for request in self.requests.values():
            request.at = now
        for call in self.calls.values():
            call.at = now
        for session in self.sessions.values():
            if session.first_at is not None:
                session.first_at = session.last_at = now
        self.texts = {id_: (*row[:5], now, *row[6:]) for id_, row in self.texts.items()}
        self.denials = {id_: (*row[:-1], now) for id_, row in self.denials.items()}
        self._changes.backdate(now)

    def _touch_session(self, event: ev.Event, at: int | None = None) -> ParsedSession:
        name = event.session or self.default_session
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = ParsedSession(project=self.cwd)
        if at is not None:
            session.first_at = (
                at if session.first_at is None or at < session.first_at else session.first_at
            )
            session.last_at = (
                at if session.last_at is None or at > session.last_at else session.last_at
            )
        return session

    def _on_started(self, event: ev.Started) -> None:
        session = self._touch_session(event, self._advance_time(event.at))
        self.cwd = self.cwd or event.cwd
        session.agent_version = (
            session.agent_version or _redact_name(event.agent_version or "") or None
        )
        session.project = session.project or event.cwd
        session.model = session.model or _redact_name(event.model or "") or None

    def usage(self, event: ev.Usage, /) -> None:
        """The model was asked."""
        at = self._advance_time(event.at)
        message, thread = event.message, self._threads.get(event.parent or "", EMPTY_THREAD)
        id_ = thread.request
        if (
            message is None
            or thread.message != message
            or (event.uuid is not None and not thread.has_line_id)
        ):
            id_ = self._begin_request(event, at, thread)
        else:
            thread.is_ended = event.stop_reason in FINAL_STOP_REASONS
        request = self.requests.get(id_)
        if request is None:
            request = self.requests[id_] = self._new_request(event, id_, at)
        else:
            _merge_usage(request, event)
        session = self._touch_session(event, at)
        if event.parent is None:
            self._update_context(session, request, event)

    def _begin_request(self, event: ev.Usage, at: int, thread: ThreadState) -> int:
        """The number of the request that a thread is at from now on."""
        message, parent = event.message, event.parent or ""
        mark = "" if parent == ANONYMOUS_THREAD else event.uuid or ""
        id_ = hash_text(
            f"{self.agent.name}{self.id_namespace} {message or (event.session, event.line, at)} {mark}"
        )
        before = (
            self.requests.pop(thread.request, None)
            if message is not None and thread.message == message
            else None
        )
        if before is not None:  # the beginning of a message that was streamed: now it has its name
            before.id = id_
            self.requests[id_] = before
        self._threads[parent] = ThreadState(
            message, id_, event.uuid is not None, event.stop_reason in FINAL_STOP_REASONS
        )
        return id_

    def _new_request(self, told: ev.Usage, id_: int, at: int) -> ParsedRequest:
        whose = (
            id_,
            told.session or self.default_session,
            self.run,
            told.message,
            told.parent,
            _redact_name(told.model or "unknown"),
            at,
        )
        writes, reads, hour = told.cache_write or 0, told.cache_read or 0, told.cache_write_1h or 0
        return ParsedRequest(
            *whose, told.input or 0, writes, reads, told.output or 0, told.reasoning or 0, hour
        )

    def _update_context(
        self, session: ParsedSession, request: ParsedRequest, event: ev.Usage
    ) -> None:
        """What the window of the main thread holds now (M3)."""
        session.model = request.model if request.model != "unknown" else session.model
        session.stop = event.stop_reason or session.stop
        if None in (event.input, event.cache_write, event.cache_read):
            return  # it does not say, and that is not 0
        used = request.input + request.cache_write + request.cache_read
        session.context_used = used
        session.context_peak = max(used, session.context_peak or 0)
        limit = self.agent.context_window(request.model)
        if limit is not None:
            session.context_limit = limit if used <= limit else max(limit, 1_000_000)

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
        if id_ in self._calls_by_id:
            return
        now = self._advance_time(at)
        thread = self._threads.get(parent or "", EMPTY_THREAD)
        if thread.message is None or thread.message != message:
            thread = ThreadState(
                message,
                hash_text(f"{self.agent.name}{self.id_namespace} {message or session} {line}"),
            )
        thread.calls += 1
        request = thread.request
        row, target = part_id(request, 2 * thread.calls), target_of(given)
        call = ParsedToolCall(
            row,
            id_,
            session or self.default_session,
            self.run,
            request,
            parent,
            _redact_name(name),
            kind,
            target,
            now,
        )
        self.calls[row] = self._open_calls[id_] = self._calls_by_id[id_] = call

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
        call = self._open_calls.pop(id_, None)
        if call is not None:
            call.ok, self.calls[call.id] = True, call
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
        """A tool could not do what it was asked for."""
        call = self._open_calls.get(id_)
        self.tool_result(line, session, parent, at, id_, content, output)
        if call is not None:
            call.ok, call.error = False, redact_and_truncate(text_of(content), MAX_ERROR_CHARS)

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
        if not text:
            return
        now, text = self._advance_time(at), redact_and_truncate(text, MAX_TEXT_CHARS)
        thread = self._threads.get(parent or "")
        if thread is None:
            id_ = hash_text(f"answer {session} {line} {text}")
        else:
            thread.texts += 1
            id_ = part_id(thread.request, 2 * thread.texts + 1)
        self.texts[id_] = (
            id_,
            session or self.default_session,
            self.run,
            parent,
            "answer",
            now,
            text,
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
        """The model thinks: no row."""

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        head = (event.line, event.session, event.parent, event.at)
        self.tool_call(*head, event.id, event.name, event.kind, event.message, event.input)

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        result = self.tool_error if event.is_error else self.tool_result
        head = (event.line, event.session, event.parent, event.at)
        result(*head, event.id, event.content, event.output)

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        call = self._calls_by_id.get(event.call or "")
        session = event.session or self.default_session
        tool = _redact_name(event.tool or (call.name if call is not None else "")) or None
        if call is not None:
            call.denied = True
            self.calls[call.id] = call
        id_ = stable_id(
            "denial", call.id if call is not None else (session, event.call, event.tool)
        )
        rule = (
            self.agent.allow_rule(tool, decode_raw(event.input), self.cwd)
            if tool is not None
            else None
        )
        if event.input is ev.NO_JSON and call is not None and call.target:
            rule = self.agent.allow_rule(
                call.name, {"command": call.target, "file_path": call.target}, self.cwd
            )
        reason = redact_and_truncate(event.reason, MAX_ERROR_CHARS) if event.reason else None
        rule = redact(rule) if rule else None
        self.denials.setdefault(
            id_,
            (id_, session, self.run, event.call, tool, reason, rule, self._advance_time(event.at)),
        )

    def _on_file_changed(self, event: ev.FileChanged) -> None:
        at = self._advance_time(event.at)
        session = event.session or next(
            reversed(self.sessions), self.default_session
        )  # the disk names none: the one that goes on
        call = (
            self._calls_by_id.get(event.call or "")
            if event.source == "tool"
            else self._running_call()
        )
        self._changes.add(
            event,
            at,
            (session, self.run),
            call,
            resolve_path(event.path, self.cwd or self.start_folder),
        )

    def _running_call(self) -> ParsedToolCall | None:
        """The one call that can have changed a file now; None where it could be several."""
        able = [call for call in self._open_calls.values() if call.kind not in READ_ONLY_KINDS]
        loose = [call for call in able if call.kind not in EXPLICIT_FILE_KINDS] or able
        return loose[0] if len(loose) == 1 else None

    def _on_text(self, event: ev.Text) -> None:
        if not event.synthetic:
            self.text(event.line, event.session, event.parent, event.at, event.message, event.text)

    def _on_user_message(self, event: ev.UserMessage) -> None:
        if self._threads.get(event.parent or "", EMPTY_THREAD).is_ended:
            del self._threads[
                event.parent or ""
            ]  # what comes now is another request, whatever its name
        if event.kind != "prompt" or not event.text:
            return
        at, text = self._advance_time(event.at), redact_and_truncate(event.text, MAX_TEXT_CHARS)
        id_ = hash_text(f"prompt {at} {text}")
        self.texts[id_] = (
            id_,
            event.session or self.default_session,
            self.run,
            event.parent,
            "prompt",
            at,
            text,
        )
        if event.parent is None:
            session = self._touch_session(event, at)
            session.prompts += 1
            if session.title is None and text[:1] != "<":
                session.title = text[:MAX_TITLE_CHARS]

    def _on_compaction(self, event: ev.Compaction) -> None:
        session = self._touch_session(event)
        session.compactions += 1
        session.context_used = UNKNOWN_CONTEXT if event.after is None else event.after

    def _on_cost(self, event: ev.CostState) -> None:
        session = self._touch_session(event)
        session.reported_nano = (
            event.cost_nano if event.cost_nano is not None else session.reported_nano
        )

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            self._touch_session(
                event, self._advance_time(event.at)
            ).stop = f"error: {event.kind or 'unknown'}"


def _merge_usage(request: ParsedRequest, told: ev.Usage) -> None:
    """One request, told once more: a counter only ever grows (M2)."""
    request.input = max(request.input, told.input or 0)
    request.cache_write = max(request.cache_write, told.cache_write or 0)
    request.cache_read = max(request.cache_read, told.cache_read or 0)
    request.output = max(request.output, told.output or 0)
    request.reasoning = max(request.reasoning, told.reasoning or 0)
    request.cache_write_1h = max(request.cache_write_1h, told.cache_write_1h or 0)
    if request.model == "unknown":
        request.model = _redact_name(told.model or "unknown")


EVENT_METHODS: dict[type[ev.Event], Callable[[LedgerRowSink, Any], None]] = {
    ev.Started: LedgerRowSink._on_started,
    ev.Usage: LedgerRowSink.usage,
    ev.ToolCall: LedgerRowSink._on_tool_call,
    ev.ToolResult: LedgerRowSink._on_tool_result,
    ev.PermissionDenied: LedgerRowSink._on_denied,
    ev.FileChanged: LedgerRowSink._on_file_changed,
    ev.Text: LedgerRowSink._on_text,
    ev.UserMessage: LedgerRowSink._on_user_message,
    ev.Compaction: LedgerRowSink._on_compaction,
    ev.CostState: LedgerRowSink._on_cost,
    ev.Failure: LedgerRowSink._on_failure,
}
