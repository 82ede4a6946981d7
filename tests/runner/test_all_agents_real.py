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
from tests.support.all_agents import PROGRAMS, Place, RunResult, shell, write
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


@pytest.fixture(params=PROGRAMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def assert_same_replay(place: Place, result: RunResult) -> None:
    """The newest recording gives the same report."""
    recordings = (place.data / "steno" / "tapes").rglob("*.steno")
    recording = max(recordings, key=lambda path: path.stat().st_mtime_ns)
    report, replayed = result.report, steno.read(recording)
    assert (replayed.verdict, replayed.tokens.total, replayed.result) == (
        report["verdict"],
        report["tokens"]["total"],
        report["result"],
    )


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_agent_in_each_situation(situation: str, place: Place) -> None:
    agent = place.agent
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


def test_success_and_then_resume(place: Place) -> None:
    """R5, M7: the session continues, and each run has its own usage, whatever the agent counts."""
    agent = place.agent
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


def test_an_interrupt(place: Place) -> None:
    """R4: one Ctrl-C stops it and its command; the usage so far is reported."""
    agent = place.agent
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


@pytest.mark.parametrize("place", ["gemini", "opencode", "qwen"], indirect=True)
def test_a_limit_of_turns(place: Place) -> None:
    """R6: by the agent, or by steno, which may stop it when one more request is under way."""
    agent = place.agent
    step = Answer((Text("I will."), shell(agent, "echo again")), figures(agent, 1))
    # A third request gets no answer: without one there is no fourth, however slow the machine is.
    stopped: list[bool] = []
    held = Answer(step.blocks, step.usage, once=lambda: bool(stopped))
    words = ("--max-turns", "2", "--attempts", "3")
    with place.start(step, step, held, words=words) as run:
        result = run.finish()
        stopped.append(True)
        made = len(run.server.requests)
    assert (result.code, [attempt["verdict"] for attempt in result.report["attempts"]]) == (
        3,
        ["max_turns"],
    )
    assert made <= (2 if agent == "qwen" else 3)
    assert_same_replay(place, result)


@pytest.mark.parametrize("place", ["gemini", "opencode"], indirect=True)
def test_turns_that_suffice(place: Place) -> None:
    """An answer with the last request that is allowed is the agent's result."""
    agent = place.agent
    step = Answer((Text("I will."), shell(agent, "echo again")), figures(agent, 1))
    result = place.run(step, say("Done.", usage=figures(agent, 2)), words=("--max-turns", "2"))
    assert (result.code, result.report["verdict"], result.report["result"]) == (
        0,
        "success",
        "Done.",
    )


def test_a_session_that_is_gone(place: Place) -> None:
    """R5: a new session is started once."""
    agent = place.agent
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


@pytest.mark.parametrize("place", ["gemini", "qwen 0.24.4"], indirect=True)
def test_a_loop_that_the_agent_stops(place: Place) -> None:
    """Gemini calls it a success. Neither counts the request that was cancelled."""
    step = Answer((shell(place.agent, "echo same"),), figures(place.agent, 1))
    result = place.run(step)
    assert (result.report["verdict"], result.code, result.report["terminal_reason"]) == (
        "stopped",
        3,
        "loop_detected",
    )
    assert counters(result.report) == total(*(figures(place.agent, 1) for _ in range(4)))
    bound = "tokens, cost and requests are a lower bound"
    assert any(text.startswith(bound) for text in result.report["warnings"])
    assert_same_replay(place, result)


OVERFLOWS = {
    "gemini": "The input token count (1230045) exceeds the maximum number of tokens allowed (9).",
    "qwen": "This model's maximum context length is 9 tokens. Your messages resulted in 1230045.",
}


@pytest.mark.parametrize("place", ["gemini", "qwen", "qwen 0.24.4"], indirect=True)
def test_a_request_that_exceeds_the_context(place: Place) -> None:
    fault = Fault(400, "INVALID_ARGUMENT", OVERFLOWS[place.agent])
    result = place.run(fault)
    assert (result.report["verdict"], result.code) == ("context_full", 3)
    assert_same_replay(place, result)


def test_a_long_answer_arrives_whole(place: Place) -> None:
    """Gemini, Qwen and, on a busy machine, OpenCode lose the end of it on a pipe."""
    answer = " ".join(f"w{number}" for number in range(43_000)) + " end."
    assert len(answer) > 280_000
    result = place.run(say(answer, usage=figures(place.agent, 1)))
    assert (result.code, result.report["verdict"]) == (0, "success")
    assert result.report["result"] == answer
    assert_same_replay(place, result)
