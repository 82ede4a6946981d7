"""The context window of a session's main thread, request by request."""

from ...analysis.context import ASSUMED_WINDOW, prompt_overhead
from ..protocol import Store, query_column
from ..results import ContextSample, SessionSummary

COMPACTION_RATIO = 0.6  # only a compaction shrinks the context below this part of its last size


def context_history(store: Store, session: SessionSummary) -> list[ContextSample]:
    """Return the context size of each request of the main thread, in order.

    Of a session without requests, it is the size that its last result reports.
    """
    limit = session.context_limit or ASSUMED_WINDOW
    rows = store.query(
        "SELECT at, model, input + cache_write + cache_read FROM requests "
        "WHERE session = ? AND parent IS NULL AND kind = 'request' ORDER BY at, id",
        (session.id,),
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
