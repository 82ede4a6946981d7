"""What rows are made with: the state between the parts of a file, running totals, titles."""

import msgspec
from msgspec import Struct

from .. import event as ev
from ..agents import Agent
from ..agents.base import HANDOVER_PROMPT
from ..analysis.usage import base_model_name
from ..codec.decode import decoder
from ..codec.redact import redact
from .rows import ParsedToolCall, SessionTotal, stable_id
from .witnesses import Share, add_shares

MAX_TITLE_CHARS = 200  # of the first prompt

_HANDOVER_START, _, _rest = HANDOVER_PROMPT.partition("{summary}")
_HANDOVER_TASK = _rest.removesuffix("{prompt}")


# The field order, and the names in RowSinkState, are stored in `sources.state`.
class ThreadState(Struct, array_like=True, gc=False):
    """The current message of a thread of the conversation."""

    message: str | None = None
    request: int = 0
    has_line_id: bool = False  # the request id is derived from the line's own id
    is_ended: bool = False  # the model stopped with a final reason
    calls: int = 0
    texts: int = 0


EMPTY_THREAD = ThreadState()


class RowSinkState(Struct):
    """What the next part of the same file needs from this one."""

    threads: dict[str, ThreadState]
    calls: dict[str, ParsedToolCall]
    cwd: str | None
    at: int
    counts: dict[str, tuple[int, int]] = {}  # prompts and compactions of each session
    lacks_line_ids: bool = False
    request_at: int = 0
    unlisted: int = 0


decode_state = decoder(RowSinkState).decode


# Up to here, the stream of Claude Code names no lines, and a resumed session copies its messages
# under new names.
LAST_WITHOUT_LINE_IDS = (1, 0, 85)


def names_lines(agent: Agent) -> bool:
    """Whether its messages are known by their own id and that of the line."""
    return agent.transcripts.call_identity == "message"


def is_without_line_ids(version: str | None) -> bool:
    """Whether messages are known by their id and input only: then uuids are not used."""
    parts = (version or "").split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return False
    return tuple(map(int, parts)) <= LAST_WITHOUT_LINE_IDS


def session_total(
    agent: str,
    event: ev.CostState | ev.Result,
    session: str,
    at: int,
    requests: int | None,
) -> SessionTotal:
    """The row of a running total."""
    shares: dict[str, Share] = {}
    for name, usage in (event.models or {}).items():
        share = Share(**{name: getattr(usage, name) for name in Share.__struct_fields__})
        plain = base_model_name(redact(name))
        shares[plain] = share if plain not in shares else add_shares(shares[plain], share)
    models = msgspec.json.encode(dict(sorted(shares.items()))).decode()
    id_ = stable_id("total", agent, session, event.cost_nano, models)
    return SessionTotal(id_, session, at, event.cost_nano, models, requests=requests)


def title_of(prompt: str) -> str:
    """The start of a prompt; of one that continues another session, the start of its task."""
    if prompt.startswith(_HANDOVER_START):
        prompt = prompt.rpartition(_HANDOVER_TASK)[2]
    return prompt[:MAX_TITLE_CHARS]
