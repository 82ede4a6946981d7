"""Merged reports of a task: sums are exact, and unknown if a part is unknown."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.report import (
    Attempt,
    ChangedFile,
    Context,
    Cost,
    DeniedCall,
    ModelSummary,
    Report,
    RequestRetry,
    Subagent,
    TaskReport,
    Tokens,
    ToolCallCounts,
    ToolCallSummary,
)
from steno.runner.task_report import merge_reports

FIRST = Report(
    verdict="max_turns",
    run_id="r1",
    session_id="s1",
    text="Half.",
    requests=2,
    turns=3,
    duration_ms=100,
    duration_api_ms=60,
    tokens=Tokens(1, 2, 3, 4, 1, 10),
    cost=Cost(0.1, "reported"),
    models={"big": ModelSummary(1, 2, 3, 4, 0.1, 1000, 100)},
    tools=[ToolCallSummary("t1", "Bash", "shell", True)],
    tool_counts={"Bash": ToolCallCounts(1, 0)},
    files=[
        ChangedFile("a", "/a", "created", True, ["t1"]),
        ChangedFile("b", "/b", "created", True, ["t1"]),
    ],
    denials=[DeniedCall("Write", "t9")],
    retries=[RequestRetry(1, 529)],
    subagents=[Subagent("x")],
    warnings=["orphan: process 7 outlived the agent", "context: 90% of the window used"],
)
SECOND = Report(
    verdict="success",
    ok=True,
    run_id="r2",
    session_id="s1",
    text="Done.",
    requests=1,
    turns=1,
    duration_ms=50,
    duration_api_ms=40,
    tokens=Tokens(10, 20, 30, 40, 2, 100),
    cost=Cost(0.2, "reported", 0.3),
    context=Context(used=60),
    models={
        "big": ModelSummary(9, 19, 29, 39, 0.15, 1000, 100),
        "small": ModelSummary(1, 1, 1, 1, 0.05),
    },
    tools=[ToolCallSummary("t2", "Bash", "shell", False)],
    tool_counts={"Bash": ToolCallCounts(1, 1)},
    files=[
        ChangedFile("a", "/a", "modified", True, ["t2"]),
        ChangedFile("b", "/b", "deleted", True, ["t2"]),
    ],
    retries=[RequestRetry(1, 429)],
    warnings=["the last word"],
)


def test_one_attempt_is_its_own_report() -> None:
    """Nothing is changed, and the attempt is listed."""
    result = merge_reports([SECOND], ["done"], "t1")
    assert {
        name: getattr(result, name) for name in Report.__struct_fields__
    } == msgspec.structs.asdict(SECOND)
    assert (result.task_id, [attempt.why for attempt in result.attempts]) == ("t1", ["done"])


def test_two_attempts() -> None:
    """The last one says how it ended; all else is added up, each once."""
    result = merge_reports([FIRST, SECOND], ["more", "done"], "t1")
    of_second = {name: getattr(SECOND, name) for name in Report.__struct_fields__}
    assert result == TaskReport(
        **{
            **of_second,
            "tokens": Tokens(11, 22, 33, 44, 3, 110),
            "cache_hit_rate": 33 / 66,
            "cost": Cost(0.3, "reported", 0.3),
            "models": {
                "big": ModelSummary(10, 21, 32, 43, 0.25, 1000, 100),
                "small": ModelSummary(1, 1, 1, 1, 0.05),
            },
            "requests": 3,
            "turns": 4,
            "duration_ms": 150,
            "duration_api_ms": 100,
            "tools": [*FIRST.tools, *SECOND.tools],
            "tool_counts": {"Bash": ToolCallCounts(2, 1)},
            "files": [
                ChangedFile("a", "/a", "created", True, ["t1", "t2"]),
                ChangedFile("b", "/b", "deleted", True, ["t1", "t2"]),
            ],
            "denials": FIRST.denials,
            "retries": [RequestRetry(1, 529), RequestRetry(1, 429)],
            "subagents": FIRST.subagents,
            "warnings": ["orphan: process 7 outlived the agent", "the last word"],
        },
        task_id="t1",
        attempts=[
            Attempt("r1", "s1", "max_turns", FIRST.tokens, FIRST.cost, 3, 100, "more"),
            Attempt("r2", "s1", "success", SECOND.tokens, SECOND.cost, 1, 50, "done"),
        ],
    )
    assert FIRST.files[0].tools == ["t1"]  # the attempts' own reports are as they were


def test_an_earlier_attempt_may_decide() -> None:
    """A summary in between is not the task's final attempt."""
    result = merge_reports([FIRST, SECOND], ["more", "no more"], "t1", -2)
    assert (result.verdict, result.ok, result.text, result.requests) == (
        "max_turns",
        False,
        "Half.",
        3,
    )


UNASKED = Report(verdict="network")  # nothing was asked of a model: nothing was used
UNPRICED = Report(verdict="stalled", requests=1, tokens=Tokens(1, 0, 0, None, None, None))
COMPUTED = Report(
    verdict="stalled", requests=1, tokens=Tokens(1, 0, 0, 1, 0, 2), cost=Cost(0.01, "computed")
)
UNKNOWN = Cost(None, "unknown", 0.3)


@pytest.mark.parametrize(
    ("others", "tokens", "cost"),
    [
        ([UNASKED], SECOND.tokens, Cost(0.2, "reported", 0.3)),
        ([UNPRICED], Tokens(11, 20, 30, None, None, None), UNKNOWN),
        ([COMPUTED], Tokens(11, 20, 30, 41, 2, 102), Cost(0.21, "computed", 0.3)),
        ([UNASKED, COMPUTED, UNPRICED], Tokens(12, 20, 30, None, None, None), UNKNOWN),
    ],
)
def test_unknown_stays_unknown(others: list[Report], tokens: Tokens, cost: Cost) -> None:
    """An attempt without requests counts as 0."""
    result = merge_reports([*others, SECOND], [""] * (len(others) + 1), None)
    assert (result.tokens, result.cost) == (tokens, cost)


def test_nothing_is_known_of_nothing() -> None:
    """Two attempts without requests."""
    result = merge_reports([UNASKED, UNASKED], ["", ""], None)
    assert (result.tokens, result.cost, result.turns, result.requests) == (
        Tokens(),
        Cost(),
        None,
        0,
    )


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=30))
def test_money_is_exact(nanos: list[int]) -> None:
    """Nano-dollars inside: a sum of floats would drift."""
    reports = [Report(requests=1, cost=Cost(nano / 1e9, "reported")) for nano in nanos]
    assert merge_reports(reports, [""] * len(reports), None).cost.usd == sum(nanos) / 1e9
