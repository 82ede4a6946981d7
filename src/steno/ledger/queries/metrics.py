"""Counters for monitoring, from the tables of sums: a scrape reads no run and no request."""

from typing import NamedTuple

from ..protocol import Store


class RunCount(NamedTuple):
    """Finished runs of an agent with a verdict, and how long they took."""

    agent: str
    verdict: str
    runs: int
    duration_ms: int


class AgentSpend(NamedTuple):
    """What an agent has used. `unpriced`: requests whose price is unknown."""

    agent: str
    requests: int
    input: int
    cache_write: int
    cache_read: int
    output: int
    reported_nano: int
    computed_nano: int
    unpriced: int


def count_runs(store: Store) -> list[RunCount]:
    rows = store.query(
        "SELECT agent, verdict, sum(runs), sum(duration_ms) FROM daily_runs WHERE verdict <> '' "
        "GROUP BY agent, verdict HAVING sum(runs) > 0 ORDER BY agent, verdict"
    )
    return [RunCount(agent, verdict, *map(int, sums)) for agent, verdict, *sums in rows]


def sum_spend(store: Store) -> list[AgentSpend]:
    sums = ", ".join(f"sum({name})" for name in AgentSpend._fields[1:])
    rows = store.query(f"SELECT agent, {sums} FROM daily_spend GROUP BY agent ORDER BY agent")
    return [AgentSpend(agent, *map(int, values)) for agent, *values in rows]
