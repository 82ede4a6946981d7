"""The course of a context: how full the main thread's window was at each request. It never looks at subagents."""

from ...answer.finds import Point
from ...meter import ASSUMED_WINDOW, overhead
from ..store import Store

DROP = 0.6  # a request with less than this part of the one before it follows a compaction: nothing else shrinks a window so


def course(store: Store, session: str, limit: int | None) -> list[Point]:
    """Every request of the main thread in its order, with what its window held."""
    rows = store.rows(
        "SELECT at, model, input + cache_write + cache_read FROM requests "
        "WHERE session = ? AND parent IS NULL AND kind = 'request' ORDER BY at, id",
        (session,),
    )
    found: list[Point] = []
    for at, model, used in rows:
        dropped = bool(found) and used < found[-1].used * DROP
        found.append(Point(int(at), model, int(used), limit or ASSUMED_WINDOW, dropped))
    return found


def before_any_work(store: Store, session: str, points: list[Point]) -> int | None:
    """What the first request held besides the prompt (M8); None where the prompt is not known."""
    if not points:
        return None
    said = store.rows(
        "SELECT text FROM texts WHERE session = ? AND parent IS NULL AND role = 'prompt' AND at <= ? ORDER BY at, id",
        (session, points[0].at),
    ) or store.rows("SELECT prompt FROM runs WHERE session = ? AND prompt IS NOT NULL ORDER BY started_at LIMIT 1", (session,))
    return overhead(points[0].used, "".join(text for (text,) in said)) if said else None
