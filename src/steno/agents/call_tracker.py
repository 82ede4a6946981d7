"""Unique ids for tool calls. Local models may use the same id for every call of a run. Pure."""

from msgspec import Raw, Struct

from ..event import NO_JSON


class PendingCall(Struct, gc=False):
    """A call without a result yet. `id` is unique within the run."""

    id: str
    tool: str = ""
    input: Raw = NO_JSON


class CallTracker:
    """The calls of one run. Of a call, it stores only what the result does not repeat."""

    def __init__(self) -> None:
        self._use_counts: dict[str, int] = {}
        self._pending: dict[str, PendingCall] = {}

    def open(self, agent_id: str, tool: str, input_: Raw) -> str:
        """Return a unique id: the agent's own, numbered if an earlier call had the same one."""
        pending = self._pending.get(agent_id)
        if pending is not None:
            return pending.id
        uses = self._use_counts.get(agent_id, 0) + 1
        self._use_counts[agent_id] = uses
        id_ = agent_id if uses == 1 else f"{agent_id}#{uses}"
        self._pending[agent_id] = PendingCall(id_, tool, input_)
        return id_

    def close(self, agent_id: str) -> PendingCall:
        """Return the call that a result belongs to; a bare one if the call was never seen."""
        return self._pending.pop(agent_id, None) or PendingCall(agent_id)
