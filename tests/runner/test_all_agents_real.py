"""Every agent in every situation: the real programs, through `steno run`, on a scripted model. Needs `make cli`.

For each the verdict and the exit code (V11), tokens as the server made them up (M1), and nothing left of it (R4). Each tape
must tell the same again. OpenCode's stream tells what a request used only when its calls are over: of an interrupted one
nothing is known. Qwen Code tries seven times at a fault, which takes over a minute and no setting makes less; only words of
an invalid argument make it give up, so the faults say them.
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

SOON = {"retry-after-ms": "1", "retry-after": "0"}
HOPELESS = "Request contains an invalid argument."
COST = {
    "codex": "computed",
    "copilot": "computed",
    "gemini": "computed",
    "opencode": "reported",
    "qwen": "unknown",
}
TOLD_NOTHING = {"gemini": 0, "qwen": 0}  # a failed run: these say 0, the others say nothing


def figures(agent: str, number: int) -> Usage:
    """What the n-th answer uses. Only the Responses API knows what was written to the cache."""
    return Usage(
        1_000 + number, 10 * number if agent in openai.VERSIONS else 0, 7_000 + number, 50 + number
    )


def told(report: dict[str, Any]) -> tuple[int | None, ...]:
    """The four counters and their sum."""
    return tuple(
        report["tokens"][name] for name in ("input", "cache_write", "cache_read", "output", "total")
    )


def summed(*usages: Usage) -> tuple[int, ...]:
    """What the server gave out."""
    parts = [
        sum(getattr(usage, name) for usage in usages)
        for name in ("input", "cache_write", "cache_read", "output")
    ]
    return (*parts, sum(parts))


class Row(Struct, frozen=True):
    """A situation: what the model does, how it ends, how many answers are counted, and what calls were made."""

    steps: Callable[[str, Place], tuple[Step, ...]]
    verdict: str = "success"
    code: int = 0
    answers: int = 0
    kinds: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def failing(status: int, kind: str, message: str) -> Callable[[str, Place], tuple[Step, ...]]:
    """The service fails, each time it is asked."""
    return lambda agent, place: (
        Fault(status, kind, f"{message} {HOPELESS}" if agent == "qwen" else message, SOON),
    )


ROWS = {
    "command": Row(
        lambda agent, place: (
            Answer((Text("I will."), shell(agent, "echo hello > new.txt")), figures(agent, 1)),
            say("It is made.", usage=figures(agent, 2)),
        ),
        answers=2,
        kinds=("shell",),
    ),
    "file_change": Row(
        lambda agent, place: (
            Answer((write(agent, place.work / "new.txt", "hello\n"),), figures(agent, 1)),
            say("Written.", usage=figures(agent, 2)),
        ),
        answers=2,
        kinds=("file_write", "file_edit"),
    ),
    "api_500": Row(failing(500, "server_error", "The server had an error."), "api", 1),
    "api_401": Row(failing(401, "UNAUTHENTICATED", "Incorrect API key provided."), "auth", 77),
    "limit": Row(failing(429, "rate_limit_exceeded", "Rate limit reached."), "rate_limit", 75),
    "timeout": Row(lambda agent, place: (Hang(),), "timeout", 124, words=("--timeout", "3")),
}


@pytest.fixture
def place(agent: str, tmp_path: Path) -> Place:
    return Place(agent, tmp_path)


def same_again(place: Place, done: RunResult) -> None:
    """The newest tape tells what was reported."""
    tape = max((place.data / "steno" / "tapes").rglob("*.steno"))
    report, again = done.report, steno.read(tape)
    assert (again.verdict, again.tokens.total, again.result) == (
        report["verdict"],
        report["tokens"]["total"],
        report["result"],
    )


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("agent", AGENTS)
def test_each_in_each(agent: str, row: str, place: Place) -> None:
    given = ROWS[row]
    done = place.run(*given.steps(agent, place), words=given.words)
    report = done.report
    assert (report["verdict"], done.code, report["ok"]) == (
        given.verdict,
        given.code,
        given.code == 0,
    )
    if given.answers:
        assert told(report) == summed(
            *(figures(agent, number + 1) for number in range(given.answers))
        )
        assert (place.work / "new.txt").read_text() == "hello\n"
        assert [(tool["kind"] in given.kinds, tool["ok"]) for tool in report["tools"]] == [
            (True, True)
        ]
        assert report["requests"] == given.answers
    elif row == "timeout":
        assert told(report) == (None,) * 5
    else:
        assert told(report) == (TOLD_NOTHING.get(agent),) * 5
    if row == "file_change":
        changed = [
            (file["path"], file["change"], file["inside"], file["source"])
            for file in report["files"]
        ]
        assert changed == [("new.txt", "created", True, "tool")]
    same_again(place, done)


@pytest.mark.parametrize("agent", AGENTS)
def test_success_and_then_resume(agent: str, place: Place) -> None:
    """R5, M7: the session goes on, and what a run used is its own part, whatever the agent counts over."""
    one, two, three = (figures(agent, number) for number in (1, 2, 3))
    first = place.run(say("All is well.", usage=one))
    assert (first.code, first.report["verdict"], first.report["result"]) == (
        0,
        "success",
        "All is well.",
    )
    assert (told(first.report), first.report["context"]["used"]) == (
        summed(one),
        sum(summed(one)[:3]),
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
    assert (told(second.report), second.report["context"]["used"]) == (
        summed(two, three),
        sum(summed(three)[:3]),
    )
    same_again(place, second)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_interrupt(agent: str, place: Place) -> None:
    """R4: one Ctrl-C ends it, its command too, and what it used until then is told."""
    used = figures(agent, 1)
    waits = Answer((Text("I will."), shell(agent, "touch begun; sleep 600")), used)
    with place.start(waits, say("No.", usage=used)) as run:
        run.wait_until((place.work / "begun").exists)
        assert any("sleep 600" in command for command in run.running_commands())
        run.interrupt()
        done = run.finish()
    assert (done.report["verdict"], done.code, done.report["ok"]) == ("interrupted", 130, False)
    assert told(done.report) == ((None,) * 5 if agent == "opencode" else summed(used))
    same_again(place, done)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_is_gone(agent: str, place: Place) -> None:
    """R5: it is begun anew, once, and that is said."""
    gone = "ses_000000000000gone" if agent == "opencode" else "99999999-2222-4333-8444-555555555555"
    done = place.run(
        say("Anew.", usage=figures(agent, 1)), words=("--resume", gone, "--attempts", "2")
    )
    assert (done.code, done.report["verdict"], done.report["result"]) == (0, "success", "Anew.")
    assert [attempt["verdict"] for attempt in done.report["attempts"]] == ["subprocess", "success"]
    assert told(done.report) == summed(figures(agent, 1))
