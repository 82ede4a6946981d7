"""Several runs in one file, such as recordings joined with `cat`: the sum of the runs."""

import json
from itertools import permutations
from pathlib import Path

import pytest

import steno
from steno.analysis.usage import BETWEEN_RUNS_UPPER_BOUND
from steno.report import Report
from tests.support.claude_lines import RECORDINGS, init, report, result, share, stream, usage

COUNTERS = ("input", "cache_write", "cache_read", "output")
# Of all versions: complete, killed, documents, with subagents, with a background task.
CASES = tuple(
    RECORDINGS / "claude" / name / "stdout"
    for name in (
        "1.0.100/multi_tool_edit",
        "1.0.100/simple_json",
        "1.0.100/hang_sigint",
        "2.0.37/multi_model",
        "2.0.37/hang_sigint",
        "2.0.70/retry_ok",
        "2.1.50/input_stream_json",
        "2.1.84/hook_stop",
        "2.1.100/hook_deny",
        "2.1.197/cost_base",
        "2.1.197/multi_tool_edit",
        "2.1.197/subagent_background",
        "2.1.197/model_opusplan",
        "2.1.290/resume_sub",
        "2.1.310/resume_sub_json",
        "2.1.325/api_401",
        "2.1.325/bash_background",
        "2.1.325/bg_json_format",
        "2.1.325/multi_model",
        "2.1.325/hang_sighup",
    )
)


def joined(*paths: Path) -> Report:
    return steno.read(b"\n".join(path.read_bytes() for path in paths))


def figures(*reports: Report) -> tuple[list[int], float | None, str]:
    """Tokens, dollars and the source of the dollars: those of the sum of the reports."""
    tokens = [sum(getattr(one.tokens, name) or 0 for one in reports) for name in COUNTERS]
    costs = [one.cost for one in reports]
    if any(cost.usd is None for cost in costs):
        return tokens, None, "unknown"
    sources = {cost.source for cost, one in zip(costs, reports, strict=True) if one.tokens.total}
    source = "reported" if sources <= {"reported"} else "computed"
    return tokens, round(sum(cost.usd or 0 for cost in costs), 9), source


@pytest.fixture(scope="module")
def alone() -> dict[Path, Report]:
    return {path: joined(path) for path in CASES}


def test_the_figures_of_two_sessions_add_up(alone: dict[Path, Report]) -> None:
    for first, second in permutations(CASES, 2):
        both = joined(first, second)
        parts = (alone[first], alone[second])
        assert figures(both) == figures(*parts), (first, second)
        if None not in (parts[0].requests, parts[1].requests):
            assert both.requests == sum(one.requests or 0 for one in parts), (first, second)


def test_three_sessions_add_up(alone: dict[Path, Report]) -> None:
    assert figures(joined(*CASES)) == figures(*alone.values())


@pytest.mark.parametrize(
    ("names", "tokens", "usd"),
    [  # each run counts from zero, from the session's totals, or says what is new
        (("2.1.197/cost_base", "2.1.197/cost_resume"), [0] * 4, 0.0),
        (("2.1.325/cost_base", "2.1.325/cost_resume"), [0] * 4, 0.0),
        (("2.1.290/resume_sub", "2.1.290/resume_sub2"), [28, 57022, 140000, 7719], 0.467602),
        (
            ("2.1.290/resume_sub", "2.1.290/resume_sub2", "2.1.290/resume_sub3"),
            [50, 112040, 240000, 15235],
            0.9131,
        ),
        (
            ("2.1.310/resume_sub_json", "2.1.310/resume_sub_json2"),
            [28, 57021, 140000, 7719],
            0.467597,
        ),
    ],
)
def test_runs_of_one_session(names: tuple[str, ...], tokens: list[int], usd: float) -> None:
    paths = [RECORDINGS / "claude" / name / "stdout" for name in names]
    if not usd:  # each run is known
        assert figures(joined(*paths)) == figures(*map(joined, paths))
        return
    found = joined(*paths)
    assert ([getattr(found.tokens, name) for name in COUNTERS], found.cost.usd) == (tokens, usd)


def test_a_missing_run_of_the_session_is_not_booked_on_the_next() -> None:
    first, third = (
        (RECORDINGS / "claude/2.1.290" / name / "stdout").read_bytes()
        for name in ("resume_sub", "resume_sub3")
    )
    found = steno.read(first + third.replace(b"msg_", b"msg_other_"))
    assert [getattr(found.tokens, name) for name in COUNTERS] == [44, 110037, 200000, 7828]
    assert any("output of subagents is a lower bound" in text for text in found.warnings)
    # Without requests of its own, nothing shows how much is missing.
    found = steno.read(first + third)
    assert [getattr(found.tokens, name) for name in COUNTERS] == [50, 112040, 240000, 15235]
    assert BETWEEN_RUNS_UPPER_BOUND in found.warnings


def test_the_same_usage_twice_in_one_session() -> None:
    """Up to 2.1.275 a resumed run begins at zero: its totals can equal those before."""
    run = stream(init(), result())
    again = stream(init(), result())
    assert (steno.read(run + again).tokens.total, steno.read(run).tokens.total) == (42210, 21105)


def test_a_later_prompt_of_the_same_process_is_in_its_totals() -> None:
    total = share(6, 2002, 40000, 202, 0.022074)
    later = result(modelUsage={"claude-opus-5-5": total}, total_cost_usd=0.022074)
    found = report(init(), result(), init(), later)
    assert (found.tokens.total, found.cost.usd) == (42210, 0.022074)


def test_an_array_with_a_subagent_has_no_earlier_runs() -> None:
    """`--output-format json --verbose` prints the stream without the part since the last result."""
    lines = [
        json.loads(line)
        for line in (RECORDINGS / "claude/2.1.325/subagent_sync_env/stdout")
        .read_text()
        .splitlines()
    ]
    for line in lines:
        line.pop("model_usage_since_last_result", None)
    found = steno.read(json.dumps(lines).encode())
    assert (found.tokens.total, found.cost.usd, found.warnings) == (570331, 2.673244, [])


def test_totals_of_an_unknown_model_beside_several_results() -> None:
    other = {"other-model": share(5000, 0, 0, 0, 0.5)}
    lines = (result(modelUsage=other, result_index=n, usage=usage(1, 1, 1, 1)) for n in (0, 1))
    assert report(init(), *lines).tokens.total is not None
