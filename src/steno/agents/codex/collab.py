"""Calls about subagents, and the lines that name their threads. Pure."""

from msgspec import Raw
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_first_object, decode_lenient, decode_raw
from ...event import EventHead
from ..base import is_uuid
from .wire import AgentState, CodexLine, Item, Payload, SpawnOutput

SPAWN_TOOL = "spawn_agent"
MAX_DESCRIPTION_CHARS = 80
# What a line contains that names the thread of a subagent.
_THREAD_MARKERS = (b"agent_thread_id", b"receiver_thread_ids", b"agent_id")


def describe_task(prompt: str | None) -> str | None:
    """The beginning of a subagent's prompt."""
    line = (prompt or "").strip().partition("\n")[0]
    return line[:MAX_DESCRIPTION_CHARS] or None


def spawned_threads(payload: Payload) -> dict[str, str]:
    """The threads that a line says were started, each with the call that started it."""
    item = payload.item or Item()
    threads: list[str] = []
    call = item.id
    if item.type == "SubAgentActivity" and item.kind == "started":
        threads = [item.agent_thread_id or ""]
    elif item.type == "CollabAgentToolCall" and item.tool == SPAWN_TOOL:
        threads = item.receiver_thread_ids or []
    elif payload.type == "function_call_output" and b"agent_id" in bytes(payload.output):
        output = decode_raw(payload.output)
        if isinstance(output, str) and output.startswith("{"):
            threads = [_agent_id_in(output)]
        call = payload.call_id or ""
    return {thread: call for thread in threads if is_uuid(thread)}


def _agent_id_in(output: str) -> str:
    try:
        return decode_lenient(output.encode("utf-8", "replace"), SpawnOutput).agent_id or ""
    except DECODE_ERRORS:
        return ""


# By the state of a subagent in a call's item; in other states it is not done.
_FINAL_STATES = {
    "completed": "completed",
    "errored": "failed",
    "not_found": "failed",
    "interrupted": "stopped",
    "shutdown": "stopped",
}


def agent_states(item: Item) -> dict[str, AgentState]:
    """The states of subagents in the item of a call, by thread."""
    return decode_lenient(item.agents_states, dict[str, AgentState])


def call_input(item: Item) -> Raw:
    """The input of a call about subagents: the prompt, and which they are."""
    given = {"prompt": item.prompt, "agents": item.receiver_thread_ids}
    return Raw(encode({name: value for name, value in given.items() if value}))


def call_output(item: Item) -> Raw:
    """What a call about subagents returned: their states and last messages."""
    states = agent_states(item).values()
    lines = (": ".join(filter(None, (state.status, state.message))) for state in states)
    return Raw(encode("\n".join(lines)))


def task_events(item: Item, head: EventHead, ended: set[str]) -> list[ev.Event]:
    """The subagents that a finished call has started, and those that it found to have ended.

    `ended` are the threads whose end is known: closing one that is done changes nothing.
    """
    events: list[ev.Event] = []
    if item.tool == SPAWN_TOOL:
        about = describe_task(item.prompt)
        events += (
            ev.TaskStarted(*head, thread, item.id, "subagent", None, about)
            for thread in item.receiver_thread_ids or ()
        )
    for thread, state in agent_states(item).items():
        status = _FINAL_STATES.get(state.status or "")
        if status is not None and thread not in ended:
            ended.add(thread)
            events.append(ev.TaskEnded(*head, thread, None, status, state.message))
    return events


def activity_events(item: Item, head: EventHead) -> list[ev.Event]:
    """The events of an item about a subagent that was started, or that has ended."""
    thread = item.agent_thread_id
    if thread is None or item.kind is None:
        return []
    if item.kind == "started":
        name = (item.agent_path or "").rpartition("/")[2] or None
        return [ev.TaskStarted(*head, thread, item.id, "subagent", None, name)]
    status = _FINAL_STATES.get(item.kind)
    return [] if status is None else [ev.TaskEnded(*head, thread, None, status)]


def threads_in(data: bytes) -> list[str]:
    """The threads of subagents that a line of a rollout names."""
    if not any(marker in data for marker in _THREAD_MARKERS):
        return []
    line = decode_first_object(data, CodexLine)
    return list(spawned_threads((line and line.payload) or Payload()))
