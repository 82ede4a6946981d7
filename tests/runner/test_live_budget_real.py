"""Budgets and alerts during a run of the real agents whose stream has no usage. Needs `make cli`.

The figures come from the session file that the agent writes. The model never answers the request
after the budget is exceeded, so only a stop during the run ends it.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from tests.support.all_agents import Place, shell
from tests.support.modelserver import Answer, Hang, Usage

AGENTS = ("codex", "copilot", "gemini")
ONE = Usage(1001, 0, 7000, 51)
TWO = Usage(1002, 0, 7100, 52)
SUM = sum(usage.input + usage.cache_write + usage.cache_read + usage.output for usage in (ONE, TWO))
# Reached by the second request, not by the first.
LEVELS = {"codex": 0.03, "copilot": 0.05, "gemini": 0.007}
MAX_TOKENS = "12000"
MAX_COST = {"codex": "0.012", "copilot": "0.004", "gemini": "0.0009"}


def steps(agent: str) -> tuple[Any, ...]:
    """Two requests, then one that is never answered."""
    calls = [
        Answer((shell(agent, f"echo {word}"),), usage) for word, usage in (("a", ONE), ("b", TWO))
    ]
    return (*calls, Hang())


@pytest.mark.parametrize("limit", ["--max-tokens", "--max-cost"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_budget_stops_the_current_attempt(agent: str, limit: str, tmp_path: Path) -> None:
    place = Place(agent, tmp_path)
    amount = MAX_TOKENS if limit == "--max-tokens" else MAX_COST[agent]
    with place.start(*steps(agent), words=(limit, amount)) as run:
        result = run.finish()
        requests = len(run.server.requests)
    report = result.report
    assert (report["verdict"], result.code, len(report["attempts"])) == ("max_budget", 3, 1)
    assert (report["tokens"]["total"], requests in (2, 3)) == (SUM, True)
    kind = {"--max-tokens": "token", "--max-cost": "cost"}[limit]
    assert f"steno: {kind} budget " in result.err


@pytest.mark.parametrize("agent", AGENTS)
def test_alerts_come_during_the_run(agent: str, tmp_path: Path) -> None:
    """Each level once; a hook can stop a run whose model never answers again."""
    place = Place(agent, tmp_path)
    stop = f"{sys.executable} -m steno stop {{run_id}}"
    levels = ("--alert-at", f"{LEVELS[agent]:g},0.999", "--on", "alert:context", stop)
    with place.start(*steps(agent), words=levels) as run:
        result = run.finish()
    assert result.report["verdict"] == "interrupted"
    assert result.err.count("; alert at ") == 1
    recording = result.report["source"]
    (alert,) = (event for event in steno.events(recording) if isinstance(event, ev.Alert))
    assert (alert.kind, alert.level, alert.is_assumed) == ("context", LEVELS[agent], False)
    assert alert.used / alert.limit >= LEVELS[agent]
