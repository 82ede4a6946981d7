"""Calls by their ids, for agents on any model: a local model may use one id again for every call. Pure."""

from msgspec import Raw, Struct

from ..event import NO_JSON


class PendingCall(Struct, gc=False):
    """A call without its answer: the name that it has here, its tool, and what was asked."""

    id: str
    tool: str = ""
    input: Raw = NO_JSON


class CallTracker:
    """The calls of one run. It keeps a number for each id, and of a call only what its answer does not repeat."""

    def __init__(self) -> None:
        self._use_counts: dict[str, int] = {}
        self._pending: dict[str, PendingCall] = {}

    def open(self, id_: str, tool: str, given: Raw) -> str:
        """The name of a call: its id, with a number where that id was used and answered before."""
        known = self._pending.get(id_)
        if known is not None:
            return known.id
        uses = self._use_counts[id_] = self._use_counts.get(id_, 0) + 1
        name = id_ if uses == 1 else f"{id_}#{uses}"
        self._pending[id_] = PendingCall(name, tool, given)
        return name

    def close(self, id_: str) -> PendingCall:
        """The call that an answer belongs to."""
        return self._pending.pop(id_, None) or PendingCall(id_)
