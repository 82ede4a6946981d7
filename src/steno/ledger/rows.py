"""Events to rows of the ledger, of one file or one run. Pure: no clock, no disk, no database, no prices.

Identity is what makes sums exact. A request is named by its message id and the `uuid` of the first line that tells of it:
that pair is the same in the agent's stream, in its transcript, and in the copy that a fork makes of the transcript.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from .. import event as ev
from ..agents import Agent
from ..decode import decoder, plain, text_of
from ..event import Name, When
from ..paths import placed
from ..redact import clipped, redact
from ..whose import NAMED, QUIET
from .changes import Changes
from .target import target_of
from .values import END, UNKNOWN, Batch, Call, Request, Session, hashed, number, part

_named = lru_cache(1024)(redact)  # the names of models and tools: few, told again and again
TITLE = 200  # characters of the first prompt that name a session
ERROR = 500  # characters of why a call failed; the tape or transcript holds the whole
TEXT = 200_000  # characters of one message that can be searched: longer ones are pasted files
NAMELESS = "sidechain"  # the thread of subagents whose lines do not say which one they are


class Thread(Struct, array_like=True, gc=False):
    """Where a thread of the conversation is."""

    message: str | None = None
    request: int = 0
    named: bool = False  # its number is made of a line's own name
    ended: bool = False  # the model said that it has nothing more to say
    calls: int = 0  # of the message so far
    texts: int = 0


NO_THREAD = Thread()
# Why a model stops when its message is whole and the next one to speak is a person.
ENDS = ("end_turn", "stop_sequence", "max_tokens", "refusal")


class Open(Struct):
    """What joins the rows of one reading with those of the next: see `Rows`."""

    threads: dict[str, Thread]
    calls: dict[str, Call]
    cwd: str | None
    at: int


_open = decoder(Open).decode


class Rows:
    """Gathers the rows of one file or run."""

    def __init__(self, agent: Agent, fallback: str, at: int, run: str | None = None) -> None:
        self.agent, self.run = agent, run
        self.fallback = fallback  # the session of lines that name none
        self.own = ""  # of a recording that is played: it repeats the names of another run
        self.at = at  # of events that carry no time: of the event before them, else of the file
        self._dated = False  # an event carried one
        self.cwd: str | None = None
        self.place: str | None = None  # the folder it was started in, for an agent that does not say where it works
        self.sessions: dict[str, Session] = {}
        self.requests: dict[int, Request] = {}
        self.calls: dict[int, Call] = {}
        self._changes = Changes()
        self.denials: dict[int, tuple[Any, ...]] = {}
        self.texts: dict[int, tuple[Any, ...]] = {}
        self._threads: dict[str, Thread] = {}
        self._open: dict[str, Call] = {}  # calls without an answer
        self._by_call: dict[str, Call] = {}

    # -- in parts ------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """What must be remembered to go on with the next part of the same file."""
        return msgspec.json.encode(Open(self._threads, self._open, self.cwd, self.at))

    def go_on(self, state: bytes) -> None:
        """Remember what `state` said."""
        kept = _open(state)
        self._threads, self._open, self.cwd, self.at = kept.threads, kept.calls, kept.cwd, kept.at
        self._by_call.update(kept.calls)
        self._dated = True

    def batch(self, whole: bool = True) -> Batch:
        """All that was gathered; `whole`: from the beginning of its file on."""
        for session in self.sessions.values():
            session.project = session.project or self.place
        return Batch(
            self.agent.name,
            self.sessions,
            list(self.requests.values()),
            [self._call_row(call) for call in self.calls.values()],
            list(self._changes.rows.values()),
            list(self.denials.values()),
            list(self.texts.values()),
            whole,
        )

    def _call_row(self, call: Call) -> tuple[Any, ...]:
        ok = None if call.ok is None else int(call.ok)
        whose = (call.id, call.call, self.agent.name, call.session, call.run, call.request, call.parent)
        what = (call.name, call.kind, call.target, call.at, call.duration_ms, ok, int(call.denied), call.error)
        return whose + what

    # -- events in -----------------------------------------------------------------------------------------------

    def add(self, found: Iterable[ev.Event]) -> None:
        """Take in events."""
        takers = TAKERS
        for event in found:
            taker = takers.get(type(event))
            if taker is not None:
                taker(self, event)

    def _time(self, at: datetime | None) -> int:
        if at is not None:
            now = int(at.timestamp() * 1000)
            if 0 <= now < END:  # else it is not known
                if not self._dated:
                    self._date(now)
                self.at = now
        return self.at

    def _date(self, now: int) -> None:
        """The first event that carries a time. What came before it was not later, whatever the time of the file is."""
        self._dated = True
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
        self._changes.date(now)

    def _session(self, event: ev.Event, at: int | None = None) -> Session:
        name = event.session or self.fallback
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = Session(project=self.cwd)
        if at is not None:
            session.first_at = at if session.first_at is None or at < session.first_at else session.first_at
            session.last_at = at if session.last_at is None or at > session.last_at else session.last_at
        return session

    def _on_started(self, event: ev.Started) -> None:
        session = self._session(event, self._time(event.at))
        self.cwd = self.cwd or event.cwd
        session.agent_version = session.agent_version or _named(event.agent_version or "") or None
        session.project = session.project or event.cwd
        session.model = session.model or _named(event.model or "") or None

    def use(self, event: ev.Usage, /) -> None:
        """The model was asked."""
        at = self._time(event.at)
        message, thread = event.message, self._threads.get(event.parent or "", NO_THREAD)
        id_ = thread.request
        if message is None or thread.message != message or (event.uuid is not None and not thread.named):
            id_ = self._begin(event, at, thread)
        else:
            thread.ended = event.stop_reason in ENDS
        request = self.requests.get(id_)
        if request is None:
            request = self.requests[id_] = self._request(event, id_, at)
        else:
            _grow(request, event)
        session = self._session(event, at)
        if event.parent is None:
            self._occupied(session, request, event)

    def _begin(self, event: ev.Usage, at: int, thread: Thread) -> int:
        """The number of the request that a thread is at from now on."""
        message, parent = event.message, event.parent or ""
        mark = "" if parent == NAMELESS else event.uuid or ""
        id_ = hashed(f"{self.agent.name}{self.own} {message or (event.session, event.line, at)} {mark}")
        before = self.requests.pop(thread.request, None) if message is not None and thread.message == message else None
        if before is not None:  # the beginning of a message that was streamed: now it has its name
            before.id = id_
            self.requests[id_] = before
        self._threads[parent] = Thread(message, id_, event.uuid is not None, event.stop_reason in ENDS)
        return id_

    def _request(self, told: ev.Usage, id_: int, at: int) -> Request:
        whose = (id_, told.session or self.fallback, self.run, told.message, told.parent, _named(told.model or "unknown"), at)
        writes, reads, hour = told.cache_write or 0, told.cache_read or 0, told.cache_write_1h or 0
        return Request(*whose, told.input or 0, writes, reads, told.output or 0, told.reasoning or 0, hour)

    def _occupied(self, session: Session, request: Request, event: ev.Usage) -> None:
        """What the window of the main thread holds now (M3)."""
        session.model = request.model if request.model != "unknown" else session.model
        session.stop = event.stop_reason or session.stop
        if None in (event.input, event.cache_write, event.cache_read):
            return  # it does not say, and that is not 0
        used = request.input + request.cache_write + request.cache_read
        session.context_used = used
        session.context_peak = max(used, session.context_peak or 0)
        limit = self.agent.window(request.model)
        if limit is not None:
            session.context_limit = limit if used <= limit else max(limit, 1_000_000)

    def call(
        self, line: int, session: Name, parent: Name, at: When, id_: str, name: str, kind: str, message: Name, given: Raw, /
    ) -> None:
        """A tool is asked for."""
        if id_ in self._by_call:
            return
        now = self._time(at)
        thread = self._threads.get(parent or "", NO_THREAD)
        if thread.message is None or thread.message != message:
            thread = Thread(message, hashed(f"{self.agent.name}{self.own} {message or session} {line}"))
        thread.calls += 1
        request = thread.request
        row, target = part(request, 2 * thread.calls), target_of(given)
        call = Call(row, id_, session or self.fallback, self.run, request, parent, _named(name), kind, target, now)
        self.calls[row] = self._open[id_] = self._by_call[id_] = call

    def answer(self, at: When, id_: str, /) -> None:
        """A tool did what it was asked for."""
        call = self._open.pop(id_, None)
        if call is not None:
            call.ok, self.calls[call.id] = True, call
            if at is not None:
                call.duration_ms = max(0, self._time(at) - call.at)

    def fail(self, at: When, id_: str, content: Raw, /) -> None:
        """A tool could not do what it was asked for."""
        call = self._open.get(id_)
        self.answer(at, id_)
        if call is not None:
            call.ok, call.error = False, clipped(text_of(content), ERROR)

    def say(self, line: int, session: Name, parent: Name, at: When, message: Name, text: str, /) -> None:
        """The model answers."""
        if not text:
            return
        now, text = self._time(at), clipped(text, TEXT)
        thread = self._threads.get(parent or "")
        if thread is None:
            id_ = hashed(f"answer {session} {line} {text}")
        else:
            thread.texts += 1
            id_ = part(thread.request, 2 * thread.texts + 1)
        self.texts[id_] = (id_, session or self.fallback, self.run, parent, "answer", now, text)

    def think(self, at: When, /) -> None:
        """The model thinks: no row."""

    def _on_call(self, event: ev.ToolCall) -> None:
        head = (event.line, event.session, event.parent, event.at)
        self.call(*head, event.id, event.name, event.kind, event.message, event.input)

    def _on_result(self, event: ev.ToolResult) -> None:
        if event.is_error:
            self.fail(event.at, event.id, event.content)
        else:
            self.answer(event.at, event.id)

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        call = self._by_call.get(event.call or "")
        session = event.session or self.fallback
        tool = _named(event.tool or (call.name if call is not None else "")) or None
        if call is not None:
            call.denied = True
            self.calls[call.id] = call
        id_ = number("denial", call.id if call is not None else (session, event.call, event.tool))
        rule = self.agent.allow_rule(tool, plain(event.input), self.cwd) if tool is not None else None
        if event.input is ev.NO_JSON and call is not None and call.target:
            rule = self.agent.allow_rule(call.name, {"command": call.target, "file_path": call.target}, self.cwd)
        reason = clipped(event.reason, ERROR) if event.reason else None
        rule = redact(rule) if rule else None
        self.denials.setdefault(id_, (id_, session, self.run, event.call, tool, reason, rule, self._time(event.at)))

    def _on_change(self, event: ev.FileChanged) -> None:
        at = self._time(event.at)
        session = event.session or next(reversed(self.sessions), self.fallback)  # the disk names none: the one that goes on
        call = self._by_call.get(event.call or "") if event.source == "tool" else self._running()
        self._changes.add(event, at, (session, self.run), call, placed(event.path, self.cwd or self.place))

    def _running(self) -> Call | None:
        """The one call that can have changed a file now; None where it could be several."""
        able = [call for call in self._open.values() if call.kind not in QUIET]
        loose = [call for call in able if call.kind not in NAMED] or able
        return loose[0] if len(loose) == 1 else None

    def _on_text(self, event: ev.Text) -> None:
        if not event.synthetic:
            self.say(event.line, event.session, event.parent, event.at, event.message, event.text)

    def _on_user(self, event: ev.UserMessage) -> None:
        if self._threads.get(event.parent or "", NO_THREAD).ended:
            del self._threads[event.parent or ""]  # what comes now is another request, whatever its name
        if event.kind != "prompt" or not event.text:
            return
        at, text = self._time(event.at), clipped(event.text, TEXT)
        id_ = hashed(f"prompt {at} {text}")
        self.texts[id_] = (id_, event.session or self.fallback, self.run, event.parent, "prompt", at, text)
        if event.parent is None:
            session = self._session(event, at)
            session.prompts += 1
            if session.title is None and text[:1] != "<":
                session.title = text[:TITLE]

    def _on_compaction(self, event: ev.Compaction) -> None:
        session = self._session(event)
        session.compactions += 1
        session.context_used = UNKNOWN if event.after is None else event.after

    def _on_cost(self, event: ev.CostState) -> None:
        session = self._session(event)
        session.reported_nano = event.cost_nano if event.cost_nano is not None else session.reported_nano

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            self._session(event, self._time(event.at)).stop = f"error: {event.kind or 'unknown'}"


def _grow(request: Request, told: ev.Usage) -> None:
    """One request, told once more: a counter only ever grows (M2)."""
    request.input = max(request.input, told.input or 0)
    request.cache_write = max(request.cache_write, told.cache_write or 0)
    request.cache_read = max(request.cache_read, told.cache_read or 0)
    request.output = max(request.output, told.output or 0)
    request.reasoning = max(request.reasoning, told.reasoning or 0)
    request.cache_write_1h = max(request.cache_write_1h, told.cache_write_1h or 0)
    if request.model == "unknown":
        request.model = _named(told.model or "unknown")


TAKERS: dict[type[ev.Event], Callable[[Rows, Any], None]] = {
    ev.Started: Rows._on_started,
    ev.Usage: Rows.use,
    ev.ToolCall: Rows._on_call,
    ev.ToolResult: Rows._on_result,
    ev.PermissionDenied: Rows._on_denied,
    ev.FileChanged: Rows._on_change,
    ev.Text: Rows._on_text,
    ev.UserMessage: Rows._on_user,
    ev.Compaction: Rows._on_compaction,
    ev.CostState: Rows._on_cost,
    ev.Failure: Rows._on_failure,
}
