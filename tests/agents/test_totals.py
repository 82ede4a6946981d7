"""Token totals of Gemini CLI, OpenCode and Qwen Code against those of the scripted server.

The server answers its n-th request with fixed figures, so that sums can be told apart. Gemini:
prompt 7000+n, candidates 40+n, cached 5000, thoughts 7. Chat Completions: prompt 9000+n, completion
60+n, cached 8000.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import steno
from tests.agent_cases import CASES, VERSIONS, case, lines
from tests.golden import name


def _google_usage(numbers: Iterable[int], thoughts: int) -> dict[str, Any]:
    requests = list(numbers)
    return _total(
        sum(2000 + number for number in requests),
        5000 * len(requests),
        sum(40 + number + thoughts for number in requests),
    )


def _openai_usage(numbers: Iterable[int]) -> dict[str, Any]:
    requests = list(numbers)
    return _total(
        sum(1000 + number for number in requests),
        8000 * len(requests),
        sum(60 + number for number in requests),
    )


def _total(input_: int, read: int, output: int) -> dict[str, Any]:
    return {
        "input": input_,
        "cache_write": 0,
        "cache_read": read,
        "output": output,
        "total": input_ + read + output,
    }


COUNTERS = ("input", "cache_write", "cache_read", "output", "total")
SERVER_TOTALS = {
    # The stream has no thoughts; the json format and the chat do.
    ("gemini", "success"): _google_usage([1], 0),
    ("gemini", "success_json"): _google_usage([1], 7),
    ("gemini", "tools"): _google_usage([1, 2, 3, 4], 0),
    ("gemini", "tools_json"): _google_usage([1, 2, 3, 4], 7),
    ("gemini", "tools_chat"): _google_usage([1, 2, 3, 4], 7),
    ("gemini", "resume_chat"): _google_usage([1], 7),
    ("gemini", "permission_denied"): _google_usage([1, 2], 0),
    # The first request of a new session is for its title, and not in the stream.
    ("opencode", "success"): _openai_usage([2]),
    ("opencode", "resume.1"): _openai_usage([2]),
    ("opencode", "resume"): _openai_usage([1]),
    ("opencode", "tools"): _openai_usage([2, 3, 4, 5]),
    # The helper that updates the memory makes one request that has no message.
    ("qwen", "success"): _openai_usage([2, 3]),
    ("qwen", "success_json"): _openai_usage([1, 2]),
    ("qwen", "partial"): _openai_usage([1, 2]),
    ("qwen", "tools"): _openai_usage([1, 2, 3]),
    ("qwen", "max_turns"): _openai_usage([1]),
    # Two runs of one session in one chat. The second request of the first run is the helper's.
    ("qwen", "resume_first_read_later"): _total(1001 + 1001, 14000, 51 + 51),
    ("qwen", "resume_chat"): _total(1002 + 1001, 14100, 52 + 51),
    ("qwen", "sigint"): _openai_usage(range(1, 295)),
}


def _scripted_usage(*numbers: int) -> dict[str, Any]:
    """The newer recordings: input 1000+n, cached 7000+n, output 50+n."""
    return _total(
        sum(1000 + number for number in numbers),
        sum(7000 + number for number in numbers),
        sum(50 + number for number in numbers),
    )


QWEN_0_24_TOTALS = {
    "success": _scripted_usage(1),
    "success_json": _scripted_usage(1, 2),
    "partial": _scripted_usage(1, 2),
    "tools": _scripted_usage(1, 2, 3),
    "max_turns": _scripted_usage(1, 2),
    "max_tool_calls": _scripted_usage(1, 2, 3),
    "permission_denied": _scripted_usage(1, 2),
    "resume_chat": _scripted_usage(2, 3),  # without request 1, of the session's first run
}


@pytest.mark.parametrize("scenario", QWEN_0_24_TOTALS)
def test_the_totals_of_qwen_0_24_are_the_servers(scenario: str) -> None:
    tokens = steno.read(case("qwen", scenario, "0.24.4")).tokens
    assert {part: getattr(tokens, part) for part in COUNTERS} == QWEN_0_24_TOTALS[scenario]


@pytest.mark.parametrize(("agent", "scenario"), SERVER_TOTALS, ids="/".join)
def test_the_totals_are_the_servers(agent: str, scenario: str) -> None:
    """M1: four disjoint counters, as the server sent them."""
    tokens = steno.read(case(agent, scenario)).tokens
    assert {part: getattr(tokens, part) for part in COUNTERS} == SERVER_TOTALS[agent, scenario]


def _reported_by(path: Path) -> tuple[int, int] | None:
    """The total input and output in a recording, by the agent's field names; None if missing."""
    agent = path.parents[1].name
    if agent == "opencode":
        steps = [line["part"]["tokens"] for line in lines(path) if line["type"] == "step_finish"]
        if not steps:
            return None
        inputs = sum(
            step["input"] + step["cache"]["read"] + step["cache"]["write"] for step in steps
        )
        return inputs, sum(step["output"] + step["reasoning"] for step in steps)
    text = (path / "stdout").read_text("utf-8")
    if text.startswith("{\n"):
        shares = [model["tokens"] for model in json.loads(text)["stats"]["models"].values()]
        return sum(share["prompt"] for share in shares), sum(
            share["candidates"] + share["thoughts"] for share in shares
        )
    results = [line for line in lines(path) if line.get("type") == "result"]
    if not results:
        return None
    usage = results[-1]["stats" if agent == "gemini" else "usage"]
    total = usage.get("total_tokens", usage["input_tokens"] + usage["output_tokens"])
    return usage["input_tokens"], total - usage["input_tokens"]  # with thoughts


@pytest.mark.parametrize(
    "path", [path for path in CASES if not (path / "sessions").is_dir()], ids=name
)
def test_the_totals_are_what_the_agent_reported(path: Path) -> None:
    """Every recording, read independently."""
    reported = _reported_by(path)
    tokens = steno.read(path).tokens
    if reported is None:
        assert tokens.total is None or path.name in ("max_turns", "max_tool_calls", "sigint")
    else:
        assert (tokens.total, tokens.output) == (sum(reported), reported[1])


# Recordings of other versions than the main one are named with their version.
VERDICTS = {
    "gemini": {
        "api_400_key": "auth",
        "api_400_key_json": "auth",
        "api_401": "auth",
        "api_429_full": "rate_limit",
        "api_500": "killed",
        "api_500_full": "api",
        "finish_max_tokens": "success",
        "finish_safety": "success",
        "invalid_flag": "subprocess",
        "no_key": "auth",
        "permission_denied": "permission",
        "resume_chat": "success",
        "resume_wrong_id": "subprocess",
        "sigint": "killed",
        "sigint_group": "no_result",
        "sigterm": "killed",
        "sigterm_group": "no_result",
        "success": "success",
        "success_json": "success",
        "tools": "success",
        "tools_chat": "success",
        "tools_json": "success",
        "unicode": "success",
        "context_full": "context_full",
        "context_full_json": "context_full",
        "hook_block": "stopped",
        "hook_stop": "stopped",
        "hook_stop_json": "stopped",
        "loop": "stopped",
        "loop_json": "stopped",
        "0.27.0/plain": "success",
        "0.45.2/api_429_full": "rate_limit",
        "0.45.2/hook_stop": "stopped",
        "0.45.2/loop": "stopped",
    },
    "opencode": {
        "api_400": "invalid_request",
        "api_401": "auth",
        "api_429": "rate_limit",
        "api_500": "killed",
        "api_500_exhausted": "api",
        "content_filter": "refused",
        "cut_step": "success",
        "killed_after_step": "killed",
        "permission_denied": "permission",
        "1.2.27/permission_rejected": "permission",
        "subagent": "success",
        "resume": "success",
        "resume.1": "success",
        "1.2.27/resume_unknown_session": "subprocess",
        "resume_wrong_id": "subprocess",
        "sigint": "interrupted",
        "success": "success",
        "tools": "success",
    },
    "qwen": {
        "api_401": "auth",
        "api_429": "rate_limit",
        "api_500": "api",
        "max_turns": "max_turns",
        "partial": "success",
        "permission_denied": "permission",
        "resume_chat": "success",
        "resume_first_read_later": "success",
        "sigint": "interrupted",
        "success": "success",
        "success_json": "success",
        "tools": "success",
        "0.24.4/api_401": "auth",
        "0.24.4/api_429_interrupted": "interrupted",
        "0.24.4/context_full": "context_full",
        "0.24.4/empty": "api",
        "0.24.4/loop": "stopped",
        "0.24.4/max_tool_calls": "max_budget",
        "0.24.4/max_turns": "max_turns",
        "0.24.4/max_turns_json": "max_turns",
        "0.24.4/partial": "success",
        "0.24.4/permission_denied": "permission",
        "0.24.4/resume_chat": "success",
        "0.24.4/success": "success",
        "0.24.4/success_json": "success",
        "0.24.4/tools": "success",
    },
}


@pytest.mark.parametrize("agent", VERDICTS)
def test_every_recording_has_its_verdict(agent: str) -> None:
    """Whatever the exit code and the agent say, a failure is not ok."""
    reports = {
        path.name if path.parent.name == VERSIONS[agent] else f"{path.parent.name}/{path.name}": (
            steno.read(path)
        )
        for path in CASES
        if path.parents[1].name == agent
    }
    assert {name: report.verdict for name, report in reports.items()} == VERDICTS[agent]
    assert {name for name, report in reports.items() if report.ok} == {
        name for name, verdict in VERDICTS[agent].items() if verdict == "success"
    }
