"""Threads of subagents. Pure.

Each has a rollout of its own, whose first line names the thread that started it. Neither the stream
nor the rollout of that thread contains its requests.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_lenient
from .collab import describe_task, spawned_threads
from .rollout import RolloutReader
from .wire import CodexLine, Payload, ThreadSource

MAX_THREADS = 1000  # of one run
_KEPT_EVENTS = (
    ev.Usage,
    ev.UserMessage,
    ev.Text,
    ev.Thinking,
    ev.ToolCall,
    ev.ToolResult,
    ev.FileChanged,
    ev.PermissionDenied,
    ev.Compaction,
    ev.Result,
)


def _parent_of(payload: Payload) -> str | None:
    """The thread that started the one of this first line; None if a person did."""
    subagent = decode_lenient(payload.source, ThreadSource).subagent
    spawn = subagent.thread_spawn if subagent is not None else None
    own = spawn.parent_thread_id if spawn is not None else None
    return own or payload.parent_thread_id


class SubagentThread(Struct):
    """What the rollout of a subagent says, with its own results last."""

    id: str
    parent: str
    role: str | None
    reader: RolloutReader = field(default_factory=RolloutReader)
    events: list[ev.Event] = field(default_factory=list)
    spawned: dict[str, str] = field(default_factory=dict)


class SubagentThreads:
    """The threads of all subagents in the rollouts that complete a stream."""

    def __init__(self) -> None:
        self._threads: dict[str, SubagentThread] = {}
        self._current: SubagentThread | None = None

    def begin(self, first: Payload) -> "SubagentThreads | None":
        """Expect the lines of another rollout; None if it isn't a subagent's."""
        self._current = None
        parent = _parent_of(first)
        if parent is None or first.id is None or len(self._threads) >= MAX_THREADS:
            return None
        self._current = SubagentThread(first.id, parent, first.agent_role)
        self._threads.setdefault(first.id, self._current)
        return self

    def add(self, line: CodexLine, data: bytes) -> None:
        """Add a line of the rollout that began last."""
        thread = self._current
        if thread is None:
            return
        events = thread.reader.events(line, data, 0)
        thread.events += (event for event in events if isinstance(event, _KEPT_EVENTS))
        if not thread.reader.is_copying:
            thread.spawned |= spawned_threads(line.payload or Payload())

    def events(
        self,
        session: str,
        spawned: dict[str, str],
        ids: dict[str, str],
        start: datetime | None,
        end: datetime | None,
    ) -> list[ev.Event]:
        """What the subagents did between two times; a subagent may be asked again in a later run.

        `spawned` are the threads that the main thread, `session`, started, each with its call;
        `ids` are the stream's ids of such calls.
        """
        found: list[ev.Event] = []
        pending = [(session, id_, ids.get(call, call)) for id_, call in spawned.items()]
        seen: set[str] = set()
        while pending:
            parent, id_, call = pending.pop(0)
            thread = self._threads.get(id_)
            if thread is None or thread.parent != parent or id_ in seen:
                continue
            seen.add(id_)
            events = [event for event in thread.events if _is_between(event.at, start, end)]
            if events:
                found += _thread_events(thread, call, events)
            pending += [(id_, child, f"{id_}/{own}") for child, own in thread.spawned.items()]
        return found


def _is_between(at: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    if at is None:
        return True
    return (start is None or at >= start) and (end is None or at < end)


def _thread_events(thread: SubagentThread, call: str, events: list[ev.Event]) -> Iterator[ev.Event]:
    """The events of a thread below the call that started it; ids of calls repeat in each thread."""
    messages = (event for event in events if isinstance(event, ev.UserMessage))
    prompt = next((event.text for event in messages if event.kind == "prompt"), None)
    head = (0, thread.id, None, events[0].at)
    yield ev.TaskStarted(
        *head, thread.id, call, "subagent", thread.role, describe_task(prompt), None
    )
    ended = None
    for event in events:
        if isinstance(event, ev.Result):
            ended = event
        elif isinstance(event, ev.ToolCall | ev.ToolResult):
            yield replace(event, id=f"{thread.id}/{event.id}", parent=call)
        elif isinstance(event, ev.PermissionDenied | ev.FileChanged):
            yield replace(event, call=f"{thread.id}/{event.call}", parent=call)
        else:
            yield replace(event, parent=call)
    if ended is not None:
        status = "completed"
        if ended.is_error:
            is_aborted = (ended.terminal_reason or "").startswith("aborted_")
            status = "stopped" if is_aborted else "failed"
        yield ev.TaskEnded(0, thread.id, None, ended.at, thread.id, call, status)
