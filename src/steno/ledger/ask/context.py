"""The course of a context: how full the main thread's window was at each request. It never looks at subagents."""

from ...answer.finds import Point
from ...meter import ASSUMED_WINDOW
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
