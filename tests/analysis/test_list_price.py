"""A reported cost that contradicts the price list is shown with both figures."""

from typing import Any

import pytest

from tests.support.claude_lines import Json, init, report, result, share, usage

OPUS = "claude-opus-5-5"
SONNET = "claude-sonnet-4-6"


def warnings(model: str, entry: Json, **more: Any) -> list[str]:
    line = result(modelUsage={model: entry}, total_cost_usd=entry["costUSD"], **more)
    return report(init(model=model), line).warnings


def test_a_cost_by_the_list_has_no_warning() -> None:
    assert warnings(OPUS, share()) == []
    assert warnings(OPUS, share(cost=0.0115)) == []  # within a tenth


@pytest.mark.parametrize("usd", [0.018796, 0.005])
def test_a_price_that_is_not_the_lists(usd: float) -> None:
    assert warnings(SONNET, share(cost=usd)) == [
        f"the agent reports a cost of ${usd:.6f}, but its tokens cost $0.011278 by the price list"
    ]


def test_cache_writes_for_an_hour_charged_like_those_for_five_minutes() -> None:
    used = usage(write=10_000, output=101, hour=10_000)
    entry = share(write=10_000, cost=0.045024)
    assert warnings(SONNET, entry, usage=used) == [
        "the agent reports a cost of $0.045024, but its tokens cost $0.067524 by the price list"
    ]
    assert warnings(SONNET, share(write=10_000, cost=0.067524), usage=used) == []


def test_web_searches_have_their_price() -> None:
    assert warnings(OPUS, share(cost=0.031037, webSearchRequests=2)) == []


def test_a_higher_price_for_large_requests() -> None:
    entry = share(given=30, write=1000, read=540_000, output=300, cost=0.17034)
    line: Json = {"usage": usage(30, 1000, 540_000, 300), "num_turns": 3}
    assert warnings("claude-sonnet-4-5-20250929", entry, **line) == []


def test_a_model_without_a_price() -> None:
    assert warnings("my-own-model", share()) == []
