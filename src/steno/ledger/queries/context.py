"""The context window of a session's main thread, request by request."""

from ...analysis.context import ASSUMED_WINDOW, prompt_overhead
from ..protocol import Store, query_column
from ..results import ContextSample, SessionSummary
from .filters import WhereClause

COMPACTION_RATIO = 0.6  # only a compaction shrinks the context below this part of its last size


def context_history(
    store: Store, session: SessionSummary, run: str | None = None
) -> list[ContextSample]:
    """Return the context size of each request of the main thread, in order.

    Of a session without requests, it is the size that its last result reports. `run`: only the
    requests of this run of the session.
    """
    limit = session.context_limit or ASSUMED_WINDOW
    where = WhereClause().add("session = ?", session.id)
    where.add("parent IS NULL AND kind = 'request'")
    if run is not None:
        where.add("run = ?", run)
    rows = store.query(
        f"SELECT at, model, input + cache_write + cache_read FROM requests{where.sql} "
        "ORDER BY at, id",
        where.values,
    )
    if not rows and session.context_used is not None:
        rows = [(session.last_at or 0, session.model or "unknown", session.context_used)]
    samples: list[ContextSample] = []
    for at, model, used in rows:
        compacted = bool(samples) and used < samples[-1].used * COMPACTION_RATIO
        samples.append(ContextSample(int(at), model, int(used), limit, compacted))
    return samples


def initial_overhead(store: Store, session: str, samples: list[ContextSample]) -> int | None:
    """Return the size of the first request without the prompt; None if the prompt is unknown."""
    if not samples:
        return None
    first = samples[0]
    prompts = query_column(
        store,
        "SELECT text FROM texts WHERE session = ? AND parent IS NULL AND role = 'prompt' "
        "AND at <= ? ORDER BY at, id",
        (session, first.at),
    ) or query_column(
        store,
        "SELECT prompt FROM runs WHERE session = ? AND prompt IS NOT NULL "
        "ORDER BY started_at LIMIT 1",
        (session,),
    )
    return prompt_overhead(first.used, "".join(prompts)) if prompts else None
