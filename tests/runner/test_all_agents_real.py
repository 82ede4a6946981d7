"""Every agent in every situation: the real programs with `steno run` on a scripted model.

Needs `make cli`. Checks the verdict and the exit code (V11), the tokens that the server sent (M1),
that no process is left (R4), and that the recording gives the same report. OpenCode prints the
usage of a request when its calls are finished: that of an interrupted one is unknown. Qwen Code
retries seven times after an error, for over a minute; only the message about an invalid argument
prevents it, so the errors contain it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import steno
from tests.support import openai
from tests.support.all_agents import AGENTS, Place, RunResult, shell, write
from tests.support.modelserver import Answer, Fault, Hang, Step, Text, Usage, say

RETRY_NOW = {"retry-after-ms": "1", "retry-after": "0"}
NO_RETRY = "Request contains an invalid argument."
COST = {
    "codex": "computed",
    "copilot": "computed",
    "gemini": "computed",
    "opencode": "reported",
    "qwen": "unknown",
}
COUNTERS_AFTER_FAILURE = {"gemini": 0, "qwen": 0}  # these report 0, the others nothing


def figures(agent: str, number: int) -> Usage:
    """The usage of the n-th answer. Only the Responses API has cache writes."""
    return Usage(
        1_000 + number, 10 * number if agent in openai.VERSIONS else 0, 7_000 + number, 50 + number
    )


def counters(report: dict[str, Any]) -> tuple[int | None, ...]:
    """The four counters and their sum."""
    return tuple(
        report["tokens"][name] for name in ("input", "cache_write", "cache_read", "output", "total")
    )


def total(*usages: Usage) -> tuple[int, ...]:
    """The sum of what the server sent."""
    parts = [
        sum(getattr(usage, name) for usage in usages)
        for name in ("input", "cache_write", "cache_read", "output")
    ]
    return (*parts, sum(parts))


class Situation(Struct, frozen=True):
    """The steps of the model, and the expected verdict, exit code, answers and kinds of calls."""

    steps: Callable[[str, Place], tuple[Step, ...]]
    verdict: str = "success"
    code: int = 0
    answers: int = 0
    kinds: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def failing(status: int, kind: str, message: str) -> Callable[[str, Place], tuple[Step, ...]]:
    """The service fails at every request."""
    return lambda agent, place: (
        Fault(status, kind, f"{message} {NO_RETRY}" if agent == "qwen" else message, RETRY_NOW),
    )


SITUATIONS = {
    "command": Situation(
        lambda agent, place: (
            Answer((Text("I will."), shell(agent, "echo hello > new.txt")), figures(agent, 1)),
            say("It is made.", usage=figures(agent, 2)),
        ),
        answers=2,
        kinds=("shell",),
    ),
    "file_change": Situation(
        lambda agent, place: (
            Answer((write(agent, place.work / "new.txt", "hello\n"),), figures(agent, 1)),
            say("Written.", usage=figures(agent, 2)),
        ),
        answers=2,
        kinds=("file_write", "file_edit"),
    ),
    "api_500": Situation(failing(500, "server_error", "The server had an error."), "api", 1),
    "api_401": Situation(
        failing(401, "UNAUTHENTICATED", "Incorrect API key provided."), "auth", 77
    ),
    "limit": Situation(
        failing(429, "rate_limit_exceeded", "Rate limit reached."), "rate_limit", 75
    ),
    "timeout": Situation(lambda agent, place: (Hang(),), "timeout", 124, words=("--timeout", "3")),
}


@pytest.fixture
def place(agent: str, tmp_path: Path) -> Place:
    return Place(agent, tmp_path)


def assert_same_replay(place: Place, result: RunResult) -> None:
    """The newest recording gives the same report."""
    recording = max((place.data / "steno" / "tapes").rglob("*.steno"))
    report, replayed = result.report, steno.read(recording)
    assert (replayed.verdict, replayed.tokens.total, replayed.result) == (
        report["verdict"],
        report["tokens"]["total"],
        report["result"],
    )


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_in_each_situation(agent: str, situation: str, place: Place) -> None:
    expected = SITUATIONS[situation]
    result = place.run(*expected.steps(agent, place), words=expected.words)
    report = result.report
    assert (report["verdict"], result.code, report["ok"]) == (
        expected.verdict,
        expected.code,
        expected.code == 0,
    )
    if expected.answers:
        assert counters(report) == total(
            *(figures(agent, number + 1) for number in range(expected.answers))
        )
        assert (place.work / "new.txt").read_text() == "hello\n"
        assert [(tool["kind"] in expected.kinds, tool["ok"]) for tool in report["tools"]] == [
            (True, True)
        ]
        assert report["requests"] == expected.answers
    elif situation == "timeout":
        assert counters(report) == (None,) * 5
    else:
        assert counters(report) == (COUNTERS_AFTER_FAILURE.get(agent),) * 5
    if situation == "file_change":
        changed = [
            (file["path"], file["change"], file["inside"], file["source"])
            for file in report["files"]
        ]
        assert changed == [("new.txt", "created", True, "tool")]
    assert_same_replay(place, result)


@pytest.mark.parametrize("agent", AGENTS)
def test_success_and_then_resume(agent: str, place: Place) -> None:
    """R5, M7: the session continues, and each run has its own usage, whatever the agent counts."""
    one, two, three = (figures(agent, number) for number in (1, 2, 3))
    first = place.run(say("All is well.", usage=one))
    assert (first.code, first.report["verdict"], first.report["result"]) == (
        0,
        "success",
        "All is well.",
    )
    assert (counters(first.report), first.report["context"]["used"]) == (
        total(one),
        sum(total(one)[:3]),
    )
    assert first.report["cost"]["source"] == COST[agent]
    assert (first.report["cost"]["usd"] is None) == (COST[agent] == "unknown")
    steps = (Answer((Text("I will."), shell(agent, "true")), two), say("And again.", usage=three))
    second = place.run(*steps, words=("--resume", first.report["session_id"]))
    assert (second.code, second.report["result"], second.report["session_id"]) == (
        0,
        "And again.",
        first.report["session_id"],
    )
    assert (counters(second.report), second.report["context"]["used"]) == (
        total(two, three),
        sum(total(three)[:3]),
    )
    assert_same_replay(place, second)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_interrupt(agent: str, place: Place) -> None:
    """R4: one Ctrl-C stops it and its command; the usage so far is reported."""
    answered = figures(agent, 1)
    waiting = Answer((Text("I will."), shell(agent, "touch begun; sleep 600")), answered)
    with place.start(waiting, say("No.", usage=answered)) as run:
        run.wait_until((place.work / "begun").exists)
        assert any("sleep 600" in command for command in run.running_commands())
        run.interrupt()
        result = run.finish()
    assert (result.report["verdict"], result.code, result.report["ok"]) == (
        "interrupted",
        130,
        False,
    )
    assert counters(result.report) == ((None,) * 5 if agent == "opencode" else total(answered))
    assert_same_replay(place, result)


@pytest.mark.parametrize("agent", ["gemini", "opencode", "qwen"])
def test_a_limit_of_turns(agent: str, place: Place) -> None:
    """R6: by the agent, or by steno, which may stop it when one more request is under way."""
    step = Answer((Text("I will."), shell(agent, "echo again")), figures(agent, 1))
    words = ("--max-turns", "2", "--attempts", "3")
    with place.start(step, words=words) as run:
        result = run.finish()
        made = len(run.server.requests)
    assert (result.code, [attempt["verdict"] for attempt in result.report["attempts"]]) == (
        3,
        ["max_turns"],
    )
    assert made <= (2 if agent == "qwen" else 3)
    assert_same_replay(place, result)


@pytest.mark.parametrize("agent", ["gemini", "opencode"])
def test_turns_that_suffice(agent: str, place: Place) -> None:
    """An answer with the last request that is allowed is the agent's result."""
    step = Answer((Text("I will."), shell(agent, "echo again")), figures(agent, 1))
    result = place.run(step, say("Done.", usage=figures(agent, 2)), words=("--max-turns", "2"))
    assert (result.code, result.report["verdict"], result.report["result"]) == (
        0,
        "success",
        "Done.",
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_is_gone(agent: str, place: Place) -> None:
    """R5: a new session is started once."""
    gone = "ses_000000000000gone" if agent == "opencode" else "99999999-2222-4333-8444-555555555555"
    result = place.run(
        say("Anew.", usage=figures(agent, 1)), words=("--resume", gone, "--attempts", "2")
    )
    assert (result.code, result.report["verdict"], result.report["result"]) == (
        0,
        "success",
        "Anew.",
    )
    assert [attempt["verdict"] for attempt in result.report["attempts"]] == [
        "subprocess",
        "success",
    ]
    assert counters(result.report) == total(figures(agent, 1))
