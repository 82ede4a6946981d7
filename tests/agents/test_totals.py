"""Figures of Gemini CLI, OpenCode and Qwen Code against the scripted server's own, counted here with plain json.

The server answers its n-th request with fixed figures (Gemini: prompt 7000+n, candidates 40+n, cached 5000, thoughts 7; Chat
Completions: prompt 9000+n, completion 60+n, cached 8000), so that sums can be told apart.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import steno
from tests.golden import name
from tests.others import CASES, case, lines


def _of_google(numbers: Iterable[int], thoughts: int) -> dict[str, Any]:
    found = list(numbers)
    count = len(found)
    return _total(sum(2000 + n for n in found), 5000 * count, sum(40 + n + thoughts for n in found))


def _of_openai(numbers: Iterable[int]) -> dict[str, Any]:
    found = list(numbers)
    return _total(sum(1000 + n for n in found), 8000 * len(found), sum(60 + n for n in found))


def _total(fresh: int, read: int, output: int) -> dict[str, Any]:
    return {
        "input": fresh,
        "cache_write": 0,
        "cache_read": read,
        "output": output,
        "total": fresh + read + output,
    }


SCRIPTED = {
    # The stream leaves thoughts out; the json format and the chat beside a stream tell them.
    ("gemini", "success"): _of_google([1], 0),
    ("gemini", "success_json"): _of_google([1], 7),
    ("gemini", "tools"): _of_google([1, 2, 3, 4], 0),
    ("gemini", "tools_json"): _of_google([1, 2, 3, 4], 7),
    ("gemini", "tools_chat"): _of_google([1, 2, 3, 4], 7),
    ("gemini", "resume_chat"): _of_google([1], 7),
    ("gemini", "permission_denied"): _of_google([1, 2], 0),
    # The first request of a new session makes its title, and is not in the stream.
    ("opencode", "success"): _of_openai([2]),
    ("opencode", "resume.1"): _of_openai([2]),
    ("opencode", "resume"): _of_openai([1]),
    ("opencode", "tools"): _of_openai([2, 3, 4, 5]),
    # A helper that keeps the memory makes one request more than the messages show, where it runs.
    ("qwen", "success"): _of_openai([2, 3]),
    ("qwen", "success_json"): _of_openai([1, 2]),
    ("qwen", "partial"): _of_openai([1, 2]),
    ("qwen", "tools"): _of_openai([1, 2, 3]),
    ("qwen", "max_turns"): _of_openai([1]),
    # Two runs of one session, in one chat: each its own part. Of the first, the helper that keeps the memory is the second.
    ("qwen", "resume_first_read_later"): _total(1001 + 1001, 14000, 51 + 51),
    ("qwen", "resume_chat"): _total(1002 + 1001, 14100, 52 + 51),
    ("qwen", "sigint"): _of_openai(range(1, 295)),
}


@pytest.mark.parametrize(("agent", "scenario"), SCRIPTED, ids="/".join)
def test_the_totals_are_the_servers(agent: str, scenario: str) -> None:
    """M1: four counters that do not overlap, as the server made them up."""
    tokens = steno.read(case(agent, scenario)).tokens
    assert {
        part: getattr(tokens, part)
        for part in ("input", "cache_write", "cache_read", "output", "total")
    } == SCRIPTED[agent, scenario]


def _told_by(path: Path) -> tuple[int, int] | None:
    """All input and all output that a recording tells of, by the agent's own names; None where it tells nothing."""
    agent = path.parents[1].name
    if agent == "opencode":
        steps = [line["part"]["tokens"] for line in lines(path) if line["type"] == "step_finish"]
        if not steps:
            return None
        ins = sum(step["input"] + step["cache"]["read"] + step["cache"]["write"] for step in steps)
        return ins, sum(step["output"] + step["reasoning"] for step in steps)
    text = (path / "stdout").read_text("utf-8")
    if text.startswith("{\n"):
        shares = [model["tokens"] for model in json.loads(text)["stats"]["models"].values()]
        return sum(one["prompt"] for one in shares), sum(
            one["candidates"] + one["thoughts"] for one in shares
        )
    ends = [line for line in lines(path) if line.get("type") == "result"]
    if not ends:
        return None
    usage = ends[-1]["stats" if agent == "gemini" else "usage"]
    return usage["input_tokens"], usage["output_tokens"]


@pytest.mark.parametrize(
    "path", [path for path in CASES if not (path / "sessions").is_dir()], ids=name
)
def test_the_totals_are_what_the_agent_told(path: Path) -> None:
    """Every recording, by an independent reading of its own figures."""
    told = _told_by(path)
    tokens = steno.read(path).tokens
    if told is None:
        assert tokens.total is None or path.name in ("max_turns", "sigint")
    else:
        assert (tokens.total, tokens.output) == (sum(told), told[1])


VERDICTS = {
    "gemini": {
        "api_400_key": "auth", "api_400_key_json": "auth", "api_401": "auth", "api_429_full": "rate_limit", "api_500": "killed",
        "api_500_full": "api", "finish_max_tokens": "success", "finish_safety": "success", "invalid_flag": "subprocess",
        "no_key": "auth",
        "permission_denied": "permission", "resume_chat": "success", "resume_wrong_id": "subprocess", "sigint": "killed",
        "sigint_group": "no_result", "sigterm": "killed", "sigterm_group": "no_result", "success": "success",
        "success_json": "success", "tools": "success", "tools_chat": "success", "tools_json": "success", "unicode": "success",
    },
    "opencode": {
        "api_400": "invalid_request", "api_401": "auth", "api_429": "rate_limit", "api_500": "killed",
        "api_500_exhausted": "api", "permission_denied": "permission",
        "resume": "success", "resume.1": "success", "resume_wrong_id": "subprocess", "sigint": "interrupted",
        "success": "success", "tools": "success",
    },
    "qwen": {
        "api_401": "auth", "api_429": "rate_limit", "api_500": "api", "max_turns": "max_turns",
        "partial": "success", "permission_denied": "permission", "resume_chat": "success", "resume_first_read_later": "success",
        "sigint": "interrupted", "success": "success",
        "success_json": "success", "tools": "success",
    },
}  # fmt: skip


@pytest.mark.parametrize("agent", VERDICTS)
def test_every_recording_has_its_verdict(agent: str) -> None:
    """A bad run must not look good, whatever its exit code and its own words."""
    found = {path.name: steno.read(path) for path in CASES if path.parents[1].name == agent}
    assert {name: report.verdict for name, report in found.items()} == VERDICTS[agent]
    assert {name for name, report in found.items() if report.ok} == {
        n for n, word in VERDICTS[agent].items() if word == "success"
    }
