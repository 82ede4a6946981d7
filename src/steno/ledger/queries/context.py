"""The course of a context: how full the main thread's window was at each request. It never looks at subagents."""

from ...analysis.context import ASSUMED_WINDOW, prompt_overhead
from ..results import ContextSample
from ..store import Store

COMPACTION_RATIO = 0.6  # a request with less than this part of the one before it follows a compaction: nothing else shrinks a window so


def context_history(store: Store, session: str, limit: int | None) -> list[ContextSample]:
    """Every request of the main thread in its order, with what its window held."""
    rows = store.query(
        "SELECT at, model, input + cache_write + cache_read FROM requests "
        "WHERE session = ? AND parent IS NULL AND kind = 'request' ORDER BY at, id",
        (session,),
    )
    found: list[ContextSample] = []
    for at, model, used in rows:
        dropped = bool(found) and used < found[-1].used * COMPACTION_RATIO
        found.append(ContextSample(int(at), model, int(used), limit or ASSUMED_WINDOW, dropped))
    return found


def initial_overhead(store: Store, session: str, points: list[ContextSample]) -> int | None:
    """What the first request held besides the prompt (M8); None where the prompt is not known."""
    if not points:
        return None
    said = store.query(
        "SELECT text FROM texts WHERE session = ? AND parent IS NULL AND role = 'prompt' AND at <= ? ORDER BY at, id",
        (session, points[0].at),
    ) or store.query(
        "SELECT prompt FROM runs WHERE session = ? AND prompt IS NOT NULL ORDER BY started_at LIMIT 1",
        (session,),
    )
    return prompt_overhead(points[0].used, "".join(text for (text,) in said)) if said else None
