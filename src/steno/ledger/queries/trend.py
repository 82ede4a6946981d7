"""Finished tasks over time with their figures, for `steno trend`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...analysis.usage import nano_to_usd
from ..protocol import Store, query_value
from ..results import decode_tags
from .filters import WhereClause

COLUMNS = (
    "coalesce(task, id), started_at, ok, verdict, cost_nano, "
    "input + cache_write + cache_read + output, turns, duration_ms, tags"
)


class StoredOutcome(NamedTuple):
    """A task, or a run without one; attempts are added up. None: unknown."""

    at: int
    ok: bool
    verdict: str
    cost_usd: float | None
    tokens: int | None
    turns: int | None
    duration_ms: int | None
    tags: dict[str, str]


def add_label(store: Store, where: WhereClause, label: str) -> None:
    """Require runs of this name or, if no run has it, with this text in their prompt."""
    if query_value(store, "SELECT 1 FROM runs WHERE name = ? LIMIT 1", [label]) is not None:
        where.add("name = ?", label)
    else:
        # The prompt of a later attempt may be steno's own.
        where.add("task IN (SELECT id FROM tasks WHERE replace(prompt, ?, '') <> prompt)", label)


def list_outcomes(store: Store, where: WhereClause) -> list[StoredOutcome]:
    """Return the finished tasks, oldest first."""
    where.add("verdict IS NOT NULL AND started_at IS NOT NULL")
    rows = store.query(
        f"SELECT {COLUMNS} FROM runs{where.sql} ORDER BY started_at, attempt, id", where.values
    )
    attempts: dict[str, list[Any]] = {}
    for row in rows:
        attempts.setdefault(row[0], []).append(row)
    return [_outcome(parts) for parts in attempts.values()]


def _outcome(attempts: list[Any]) -> StoredOutcome:
    """The verdict of the last attempt, and the sums of all."""
    _, _, ok, verdict, _, _, _, _, tags = attempts[-1]
    _, at, _, _, costs, tokens, turns, durations, _ = zip(*attempts, strict=True)
    return StoredOutcome(
        at=at[0],
        ok=bool(ok),
        verdict=verdict,
        cost_usd=nano_to_usd(_sum(costs)),
        tokens=_sum(tokens),
        turns=_sum(turns),
        duration_ms=_sum(durations),
        tags=decode_tags(tags),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
