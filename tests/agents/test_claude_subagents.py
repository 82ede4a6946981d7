"""Subagents of Claude Code: the last answer of one in the foreground is in its result only."""

from typing import Any

from steno.report import Subagent, Tokens
from tests.support.claude_lines import (
    Json,
    answer,
    assistant,
    call,
    init,
    report,
    result,
    share,
    text,
    usage,
)

TASK = call("toolu_1", "Task", description="Look around", subagent_type="Explore")
STEP = assistant(
    call("toolu_2", "Bash", command="ls"), message="msg_2", parent="toolu_1", stop_reason="tool_use"
)
LAST = assistant(
    text("One file."), message="msg_3", parent="toolu_1", used=usage(5), stop_reason="end_turn"
)


def ended(*steps: Json, **outcome: Any) -> list[Json]:
    """A run with a subagent; `outcome` is its structured result."""
    back = answer("toolu_1", "One file.", **({"tool_use_result": outcome} if outcome else {}))
    total = share(14, 4004, 80000, 404, 0.04)
    return [
        init(),
        assistant(TASK),
        *steps,
        back,
        assistant(text("Done."), message="msg_9"),
        result(
            modelUsage={"claude-opus-5-5": total},
            total_cost_usd=0.04,
            usage=usage(6, 2002, 40000, 202),
        ),
    ]


STEP_ONLY = Tokens(3, 1001, 20000, 1, None, 21005)
BOTH = Tokens(8, 2002, 40000, 102, None, 42112)


def row(tokens: Tokens, cost: float | None = None) -> Subagent:
    is_bound = cost is None
    return Subagent("toolu_1", "Explore", "Look around", tokens, cost, "completed", is_bound)


DONE = {"status": "completed", "agentId": "a1", "usage": usage(5, output=101)}


def test_the_last_request_is_counted_from_the_result() -> None:
    found = report(*ended(STEP, **DONE))
    assert (found.requests, found.warnings) == (4, [])
    assert found.subagents == [row(BOTH, 0.020082)]


def test_a_last_request_that_the_stream_shows_counts_once() -> None:
    found = report(*ended(STEP, LAST, **DONE))
    assert found.requests == 4
    assert found.subagents == [row(BOTH, 0.020082)]


def test_a_step_without_its_final_output_makes_a_lower_bound() -> None:
    step = {**STEP, "message": {**STEP["message"], "stop_reason": None}}
    assert report(*ended(step, **DONE)).subagents == [row(BOTH)]


def test_a_failed_request_is_none() -> None:
    zero = {"status": "completed", "agentId": "a1", "usage": usage(0, 0, 0, 0)}
    found = report(*ended(STEP, **zero))
    assert (found.requests, found.warnings) == (3, [])


def test_older_versions_report_no_last_request() -> None:
    lines = ended(STEP)
    found = report(*lines)
    assert found.requests == 3
    assert found.warnings == [
        "requests are a lower bound: the last answer of 1 subagent is not reported"
    ]
    assert found.subagents == [row(STEP_ONLY)]
    del lines[-1]["modelUsage"]  # 1.0.x
    assert (
        "tokens and requests are a lower bound: the last answer of 1 subagent is not reported"
        in report(*lines).warnings
    )
