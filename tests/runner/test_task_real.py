"""Tasks with the real Claude Code and a scripted model: verdicts, decisions, cost.

Each run is replayed from its recording with the same report. Needs `make cli`.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.agents import LaunchOptions
from steno.process import GracePeriods
from steno.runner.retry_policy import RetryPolicy, format_local_time
from steno.runner.setup import RunBudget, TaskSetup, Timeouts
from steno.runner.task import CONTINUE_PROMPT, SUMMARY_PROMPT
from tests.support import claude
from tests.support.modelserver import (
    Answer,
    Call,
    Fault,
    Hang,
    ModelServer,
    Step,
    Usage,
    call,
    limited,
    say,
)
from tests.support.tasks import Carried, carried, carry_out

UNASKED = "--dangerously-skip-permissions"
ONE = Usage(3, 1001, 20_000, 101)
TWO = Usage(5, 1002, 21_000, 102)
THREE = Usage(7, 1003, 22_000, 103)
# Dollars for a million tokens of the versions' own models: input, cache write, cache read, output.
PRICES = {"2.1.197": (5.0, 6.25, 0.5, 25.0), "2.1.325": (4.0, 5.0, 0.2, 20.0)}
GROWS = {"budget": RunBudget(turns=30)}  # as --max-turns N..30
NEVER_ENDS = "while true; do read -t 1 x < /dev/zero; done"

Make = Callable[..., TaskSetup]
pytestmark = pytest.mark.parametrize("version", claude.VERSIONS)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Make:
    """Makes a set-up for a task in a clean place; nothing of it touches the user's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def made(
        server: ModelServer | str, env: dict[str, str] | None = None, more: Any = None, **asked: Any
    ) -> TaskSetup:
        url = server if isinstance(server, str) else server.url
        environ = claude.clean_env(home, url) | {"CLAUDE_CODE_MAX_RETRIES": "0"} | (env or {})
        environ = {name: value for name, value in environ.items() if value}
        ask = LaunchOptions(**{"prompt": "Do the work.", "extra": (UNASKED,), **asked})
        program = {"program": claude.installed(version), **(more or {})}
        return TaskSetup(launch_options=ask, cwd=str(work), inherited_env=environ, **program)

    return made


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    """Starts scripted models, and ends them."""
    begun: list[ModelServer] = []

    def started(*steps: Step) -> ModelServer:
        begun.append(ModelServer(*steps).__enter__())
        return begun[-1]

    yield started
    for server in begun:
        server.__exit__()


Serve = Callable[..., ModelServer]


def truth(version: str, *usages: Usage) -> float:
    """What the requests cost, in dollars."""
    rows = [(usage.input, usage.cache_write, usage.cache_read, usage.output) for usage in usages]
    return (
        sum(
            count * price for row in rows for count, price in zip(row, PRICES[version], strict=True)
        )
        / 1e6
    )


def run_step(usage: Usage, command: str = "echo one") -> Answer:
    """The model wants a command to be run."""
    return Answer((Call("Bash", {"command": command, "description": "a command"}),), usage)


def told(server: ModelServer, number: int) -> str:
    """All text sent to the model in a request of a step."""
    return "\n".join(server.asked[number].texts())


# -- it works ------------------------------------------------------------------------------------


def test_success(make: Make, serve: Serve, version: str) -> None:
    """One attempt, with the model's figures and the truth about its cost."""
    done = carry_out(make(serve(say("All is well.", usage=ONE))))
    assert (done.verdicts, done.whys, done.said) == (["success"], ["done"], [])
    report = done.report
    assert (report.ok, report.text, report.exit_code, report.agent_version) == (
        True,
        "All is well.",
        0,
        version,
    )
    assert report.cost.usd == pytest.approx(truth(version, ONE))
    assert report.cost.source == "reported"
    assert report.session_id == done.runs[0].launch_options.session_id


def test_a_task_that_never_ends_has_no_more_turns_than_allowed(
    make: Make, serve: Serve, version: str
) -> None:
    """R6: the limit is the whole task's; the agent is not started again."""
    server = serve(run_step(ONE))
    done = carry_out(make(server, max_turns=3))
    assert (done.verdicts, len(server.asked)) == (["max_turns"], 3)
    assert done.whys == ["turn limit of the task reached (--max-turns)"]


def test_turns_that_the_agent_does_not_count(make: Make, serve: Serve, version: str) -> None:
    """Finished background work starts a turn with a count of its own: steno counts all of them."""
    begin = call("Bash", command="sleep 1", run_in_background=True, description="a second")
    server = serve(begin, say("It is started."), run_step(ONE))
    done = carry_out(make(server, max_turns=2))
    # One request may be under way before the agent is stopped; by itself it made two more.
    assert len(server.asked) <= 3
    # Where the stream shows anything of that request, the work is unfinished.
    events = list(steno.events(done.runs[0].recording_path or ""))
    first_result = next(at for at, event in enumerate(events) if isinstance(event, ev.Result))
    later = [e for e in events[first_result + 1 :] if isinstance(e, ev.Usage | ev.Result)]
    assert done.verdicts == (["max_turns"] if later else ["success"])


def test_turns_grow_as_far_as_needed(make: Make, serve: Serve, version: str) -> None:
    """R6: `--max-turns 2..30` finishes a task of four turns, in one session."""
    server = serve(run_step(ONE), run_step(TWO), run_step(ONE), say("All done.", usage=TWO))
    done = carry_out(make(server, max_turns=2, more=GROWS))
    assert (done.verdicts, len(server.asked)) == (["max_turns", "success"], 4)
    assert [run.launch_options.max_turns for run in done.runs] == [2, 4]
    assert len({attempt.session_id for attempt in done.report.attempts}) == 1


def test_max_turns_resumes_automatically(make: Make, serve: Serve, version: str) -> None:
    """R6: same session, twice the turns; the sum is right also for cumulative costs."""
    server = serve(run_step(ONE), run_step(TWO, "echo two"), say("All done.", usage=THREE))
    done = carry_out(make(server, max_turns=1, more=GROWS))
    assert done.verdicts == ["max_turns", "success"]
    assert done.whys == ["turn limit reached; continuing with up to 2 turns", "done"]
    assert [run.launch_options.max_turns for run in done.runs] == [1, 2]
    assert (
        done.runs[1].launch_options.resume
        == done.report.session_id
        == done.runs[0].launch_options.session_id
    )
    assert CONTINUE_PROMPT in server.asked[1].texts()
    assert [attempt.cost.usd for attempt in done.report.attempts] == [
        pytest.approx(truth(version, ONE)),
        pytest.approx(truth(version, TWO, THREE)),
    ]
    report = done.report
    assert report.cost.usd == pytest.approx(truth(version, ONE, TWO, THREE))
    assert report.cost.source == "reported"
    tokens = report.tokens
    assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
        15,
        3006,
        63_000,
        306,
    )
    assert (report.requests, report.tool_counts["Bash"].calls, report.text) == (3, 2, "All done.")


def test_structured_output(make: Make, serve: Serve, version: str) -> None:
    """The structured output is in the report."""
    schema = json.dumps(
        {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    )
    done = carry_out(
        make(serve(call("StructuredOutput", answer=42), say("Done.")), json_schema=schema)
    )
    assert (done.verdicts, done.report.structured_output) == (["success"], {"answer": 42})


@pytest.mark.parametrize(
    "prompt", ["--help me with this", "Repeat after me. " + "word " * 210_000 + "THE END"]
)
def test_any_prompt(make: Make, serve: Serve, version: str, prompt: str) -> None:
    """R1: one that looks like an option, and one of a megabyte."""
    server = serve(say("I will."))
    assert carry_out(make(server, prompt=prompt)).verdicts == ["success"]
    assert any(prompt in text for text in server.asked[0].texts())


def test_no_output_is_lost(make: Make, serve: Serve, version: str) -> None:
    """Versions that drop the end of a large answer on a pipe are given a file."""
    answer = "A long story. " * 200_000
    done = carry_out(make(serve(say(answer))))
    assert (done.verdicts, done.report.lines.torn, (done.report.result or "").strip()) == (
        ["success"],
        False,
        answer.strip(),
    )


def test_lost_output_is_reported(make: Make, serve: Serve, version: str, tmp_path: Path) -> None:
    """A version taken for a newer one gets a pipe: lost output is detected and reported."""
    newer = tmp_path / "9.9.9"  # a program that is named by its version
    newer.write_text(f'#!/bin/sh\nexec {claude.installed(version)} "$@"\n')
    newer.chmod(0o755)
    answer = "A long story. " * 200_000
    more = {"program": str(newer), "policy": RetryPolicy(attempts=1)}
    done = carry_out(make(serve(say(answer)), more=more))
    report, whole = done.report, (done.report.result or "").strip() == answer.strip()
    result = (report.verdict, report.complete, report.lines.torn, report.exit_code)
    assert result == (("success", True, False, 0) if whole else ("no_result", False, True, 0))
    assert (
        whole or version == "2.1.197"
    )  # which loses it mostly, but not when it is slower than we are


# -- the service ---------------------------------------------------------------------------------


def test_a_limit_that_passes(make: Make, serve: Serve, version: str) -> None:
    """The agent tries again by itself: one attempt."""
    fault = Fault(429, "rate_limit_error", "slow down", {"retry-after": "0"})
    done = carry_out(
        make(serve(fault, say("All is well.", usage=ONE)), env={"CLAUDE_CODE_MAX_RETRIES": "2"})
    )
    assert (done.verdicts, [retry.status for retry in done.report.retries]) == (["success"], [429])


def test_a_limit_is_waited_for(make: Make, serve: Serve, version: str) -> None:
    """R7: wait until the reset time plus jitter, then resume the session."""
    reset = int(time.time()) + 1000
    server = serve(run_step(ONE), limited(reset), say("All done.", usage=TWO))
    done = carry_out(
        make(
            server,
            env={"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-opens-nothing"},
        )
    )
    assert done.verdicts == ["rate_limit", "success"]
    assert done.whys == ["rate limited; waiting for the reset", "done"]
    assert done.waits == [pytest.approx(1000 + 15, abs=60)]
    assert done.runs[0].report is not None
    assert done.runs[0].report.limits.resets_at == reset
    assert done.runs[1].launch_options.resume == done.report.session_id
    assert CONTINUE_PROMPT in server.asked[2].texts()
    assert "tool_result" in str(server.asked[2].body["messages"])


def test_a_limit_without_a_time(make: Make, serve: Serve, version: str) -> None:
    """R7: half a minute. Nothing was done yet, so the prompt is sent again."""
    server = serve(Fault(429, "rate_limit_error", "slow down"), say("All is well."))
    done = carry_out(make(server))
    assert done.verdicts == ["rate_limit", "success"]
    assert done.waits == [pytest.approx(31.5, abs=5)]
    assert done.asked() == ["Do the work.", "Do the work."]
    assert done.runs[0].launch_options.session_id != done.runs[1].launch_options.session_id


def test_a_limit_with_retry_after(make: Make, serve: Serve, version: str) -> None:
    """R7: the next attempts start as late as the service asks, and later each time."""
    fault = Fault(429, "rate_limit_error", "slow down", {"retry-after": "2"})
    server = serve(fault, fault, fault, fault, say("All is well."))
    done = carry_out(make(server, env={"CLAUDE_CODE_MAX_RETRIES": "1"}))
    assert done.verdicts == ["rate_limit", "rate_limit", "success"]
    assert done.waits == [pytest.approx(2.1, abs=1), pytest.approx(4.2, abs=1)]
    assert done.whys[0] == "rate limited, as the service asks; retrying in 2 s"


def test_a_limit_that_ends_too_late(make: Make, serve: Serve, version: str) -> None:
    """R7: it ends at once, and says when the limit is over."""
    reset = int(time.time()) + 5000
    setup = make(
        serve(run_step(ONE), limited(reset)),
        env={"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-opens-nothing"},
    )
    done = carry_out(setup)
    assert (done.verdicts, done.waits, done.report.limits.resets_at) == (["rate_limit"], [], reset)
    assert done.report.hint == f"the limit resets at {format_local_time(reset)}; continue then"


DEADLINE = 5.0
ENDLESS = {
    "a model that hangs": (Hang(),),
    "a rate limit": (Fault(429, "rate_limit_error", "slow down"),),
    "endless turns": (run_step(ONE),),
    "a command that never ends": (run_step(ONE, NEVER_ENDS),),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_deadline(make: Make, serve: Serve, version: str, name: str) -> None:
    """The task ends with it, whatever happens; all waits are counted."""
    policy = RetryPolicy(deadline=time.time() + DEADLINE)
    env = {"CLAUDE_CODE_MAX_RETRIES": ""}  # its own patience: three minutes
    begun = time.monotonic()
    done = carry_out(make(serve(*ENDLESS[name]), env=env, more={"policy": policy}))
    took = time.monotonic() - begun + done.clock.ahead
    graces = GracePeriods()
    assert took < DEADLINE + graces.interrupt + graces.terminate + graces.kill + graces.drain
    assert done.verdicts == ["timeout"]
    message = "stopped by steno: deadline of the task reached (--deadline)"
    retrying = ", while retrying a request (rate_limit)" if name == "a rate limit" else ""
    assert done.report.error == message + retrying


def test_a_deadline_while_it_waits_for_a_limit(make: Make, serve: Serve, version: str) -> None:
    """A wait that ends after the deadline is not begun."""
    policy = RetryPolicy(deadline=time.time() + 60)
    done = carry_out(
        make(serve(Fault(429, "rate_limit_error", "slow down")), more={"policy": policy})
    )
    assert done.verdicts == ["rate_limit", "rate_limit"]
    assert done.waits == [pytest.approx(31.5, abs=5)]
    assert "after the deadline (--deadline)" in done.whys[-1]


def test_another_model_when_limited(make: Make, serve: Serve, version: str) -> None:
    """R11: without a wait."""
    policy = RetryPolicy(on_limit="fallback", fallback_model="claude-haiku-4-5")
    server = serve(Fault(429, "rate_limit_error", "slow down"), say("All is well."))
    done = carry_out(make(server, more={"policy": policy}))
    assert (done.verdicts, done.waits) == (["rate_limit", "success"], [])
    assert done.whys[0] == "rate limited; switching to claude-haiku-4-5"
    assert server.asked[1].body["model"].startswith("claude-haiku-4-5")


@pytest.mark.parametrize("headers", [{}, {"x-should-retry": "false"}])
def test_a_rejected_key(make: Make, serve: Serve, version: str, headers: dict[str, str]) -> None:
    """R7: stop at once; the agent itself would retry for three minutes."""
    server = serve(Fault(401, "authentication_error", "invalid x-api-key", headers))
    begun = time.monotonic()
    done = carry_out(make(server, env={"CLAUDE_CODE_MAX_RETRIES": ""}))
    assert (done.verdicts, done.waits) == (["auth"], [])
    assert done.whys == ["authentication failed; retrying won't help"]
    assert len(server.asked) <= (1 if headers else 4)  # it would be ten and more
    assert time.monotonic() - begun < 60


def test_a_prompt_that_is_too_long(make: Make, serve: Serve, version: str) -> None:
    """Nothing is gained by another attempt: it would be as long."""
    server = serve(
        Fault(400, "invalid_request_error", "prompt is too long: 214290 tokens > 200000 maximum")
    )
    done = carry_out(make(server))
    assert (done.verdicts, done.whys) == (
        ["context_full"],
        ["the prompt alone exceeds the context window"],
    )


def test_no_server_listens(make: Make, version: str) -> None:
    """A refused connection is the network's fault, and tried again after a while."""
    with ModelServer(say("never")) as closed:
        url = closed.url
    done = carry_out(make(url, more={"policy": RetryPolicy(attempts=2)}))
    assert done.verdicts == ["network", "network"]
    assert done.waits == [pytest.approx(2.0, abs=1.0)]
    assert done.whys[1] == "attempt limit reached (2 of 2)"


def test_a_stream_that_stalls(make: Make, serve: Serve, version: str) -> None:
    """R3: stopped because of silence, then retried."""
    server = serve(
        say("Thinking about it. " * 5, usage=ONE, stall_after=4), say("All is well.", usage=TWO)
    )
    done = carry_out(make(server, more={"timeouts": Timeouts(silence=1.5)}))
    assert done.verdicts == ["stalled", "success"]
    assert done.whys == ["stalled; retrying in 2 s", "done"]


def test_a_session_that_is_gone(make: Make, serve: Serve, version: str) -> None:
    """R5: replaced by a new session once, with a warning."""
    lost = str(uuid.uuid4())
    done = carry_out(make(serve(say("All is well.")), resume=lost))
    assert done.verdicts == ["subprocess", "success"]
    assert done.said == [f"session {lost} not found; starting a new one"]
    assert done.asked() == ["Do the work.", "Do the work."]


# -- what stays open -----------------------------------------------------------------------------


def test_a_command_in_the_background_that_never_ends(
    make: Make, serve: Serve, version: str
) -> None:
    """R3: it is waited for, but not for ever; the work is not done."""
    begin = call("Bash", command=NEVER_ENDS, run_in_background=True, description="never ends")
    done = carry_out(
        make(serve(begin, say("It is started.")), more={"timeouts": Timeouts(background=1.0)})
    )
    assert (done.verdicts, done.report.ok) == (["background_task"], False)
    assert "background-task: 1 not finished: never ends" in done.report.warnings
    assert "the agent kept running after its result; steno stopped it" in done.report.warnings


def test_a_refused_call(make: Make, serve: Serve, version: str) -> None:
    """V8: with the rule that would allow it."""
    done = carry_out(
        make(serve(call("Write", file_path="x.txt", content="x"), say("I may not.")), extra=())
    )
    assert (done.verdicts, done.report.ok, done.report.exit_code) == (["permission"], False, 0)
    assert [denial.tool for denial in done.report.denials] == ["Write"]
    assert done.report.hint == "to allow it: --allow 'Edit(x.txt)'"


def test_a_rule_lets_it_pass(make: Make, serve: Serve, version: str) -> None:
    """The rule that was named is enough."""
    setup = make(
        serve(call("Write", file_path="x.txt", content="x"), say("Done.")),
        extra=(),
        allow=("Edit(x.txt)",),
    )
    done = carry_out(setup)
    assert (done.verdicts, [file.path for file in done.report.files]) == (["success"], ["x.txt"])


# -- budgets -------------------------------------------------------------------------------------


def test_a_budget_of_tokens(make: Make, serve: Serve, version: str) -> None:
    """R9: ended by us while it runs."""
    server = serve(run_step(ONE), run_step(TWO), say("Done."))
    done = carry_out(make(server, more={"budget": RunBudget(tokens=20_000)}))
    assert done.verdicts == ["max_budget"]
    assert done.report.exit_code in (
        0,
        1,
    )  # its own: 1 where the interrupt meets it between two steps
    assert done.whys == ["token budget of the task exhausted"]
    assert len(server.asked) <= 2


def test_a_budget_of_dollars(make: Make, serve: Serve, version: str) -> None:
    """R9: by the agent's own account; over two attempts it is one budget."""
    budget = RunBudget(cost=truth(version, ONE, TWO) - 0.0001, turns=30)
    server = serve(run_step(ONE), run_step(TWO), run_step(THREE), say("Done."))
    done = carry_out(make(server, max_turns=1, more={"budget": budget}))
    assert done.verdicts == ["max_turns", "max_budget"]
    assert done.runs[1].launch_options.max_cost == pytest.approx(truth(version, TWO) - 0.0001)
    assert done.report.cost.usd == pytest.approx(truth(version, ONE, TWO))
    assert done.whys[1] == "cost budget of the task exhausted"


# -- context -------------------------------------------------------------------------------------


def test_a_full_context_is_handed_over(make: Make, serve: Serve, version: str) -> None:
    """R8: at 81 % the session is asked for a summary, which goes into a new session."""
    full = Usage(10, 1000, 810_000 - 1010, 100)  # of a million, in both versions
    server = serve(
        run_step(full), say("SUMMARY: half of it is done.", usage=ONE), say("All done.", usage=TWO)
    )
    done = carry_out(make(server, max_turns=1, more=GROWS))
    assert done.verdicts == ["max_turns", "success", "success"]
    assert done.said[1] == "continuing in a new session with the agent's summary"
    old, summing, new = done.runs
    assert (summing.launch_options.resume, summing.launch_options.prompt) == (
        old.launch_options.session_id,
        SUMMARY_PROMPT,
    )
    assert new.launch_options.resume is None
    assert new.launch_options.session_id != old.launch_options.session_id
    prompt = (
        "[CONTEXT FROM PREVIOUS SESSION]\nSUMMARY: half of it is done.\n\n"
        "[CURRENT TASK]\nDo the work."
    )
    assert any(prompt in text for text in server.asked[2].texts())
    assert SUMMARY_PROMPT in told(server, 1)
    assert "tool_result" in str(server.asked[1].body["messages"])
    assert "tool_result" not in str(server.asked[2].body["messages"])
    assert done.report.cost.usd == pytest.approx(truth(version, full, ONE, TWO))
    assert done.report.context.used == 5 + 1002 + 21_000


def test_a_full_session_is_not_resumed(make: Make, serve: Serve, version: str) -> None:
    """R8: another task's session, 85 % full by its transcript, is summed up first."""
    full = Usage(10, 1000, 850_000 - 1010, 100)
    server = serve(
        say("Task 1 is done.", usage=full), say("SUMMARY", usage=ONE), say("Done.", usage=TWO)
    )
    first = carry_out(make(server, more={"record": False}))  # the ledger does not know it
    more = {"policy": RetryPolicy(refresh_at=0.5)}
    done = carry_out(make(server, prompt="Task 2.", resume=first.report.session_id, more=more))
    assert (done.verdicts, [run.launch_options.resume for run in done.runs]) == (
        ["success", "success"],
        [first.report.session_id, None],
    )
    prompt = "[CONTEXT FROM PREVIOUS SESSION]\nSUMMARY\n\n[CURRENT TASK]\nTask 2."
    assert any(prompt in text for text in server.asked[2].texts())


# -- interrupts ----------------------------------------------------------------------------------


def interrupted(setup: TaskSetup, when: Callable[[Carried], bool]) -> Carried:
    """A task that a person ends as soon as it is so."""
    with carried(setup) as done:
        done.until(lambda: when(done))
        done.task.stop("interrupted")
        done.finish()
    return done


def test_an_interrupt_before_anything(make: Make, serve: Serve, version: str) -> None:
    """Before its first output."""
    done = interrupted(make(serve(Hang())), lambda done: True)
    assert (done.verdicts, done.whys, done.report.tokens.total) == (
        ["interrupted"],
        ["interrupted"],
        None,
    )


def test_an_interrupt_before_the_answer(make: Make, serve: Serve, version: str) -> None:
    """While it waits for the first byte: it exits with 0 and may give no result."""
    server = serve(Hang())
    done = interrupted(make(server), lambda done: bool(server.asked))
    assert (done.verdicts, done.whys) == (["interrupted"], ["interrupted"])


def test_an_interrupt_in_the_answer(make: Make, serve: Serve, version: str) -> None:
    """Interrupted within an answer; the session can be resumed."""
    server = serve(
        say("Thinking about it. " * 5, usage=ONE, stall_after=4), say("All done.", usage=TWO)
    )
    done = interrupted(
        make(server, partial=True),
        lambda done: any(type(event) is ev.Partial for event in done.events),
    )
    assert (done.verdicts, done.whys) == (["interrupted"], ["interrupted"])
    assert "Thinking about it." in done.report.text
    again = carry_out(going_on(done))
    assert (again.verdicts, again.report.session_id) == (["success"], done.report.session_id)


def going_on(done: Carried) -> TaskSetup:
    """The setup that resumes the session of a task."""
    setup = done.task.setup
    ask = LaunchOptions(
        prompt="go on", resume=done.report.session_id, extra=setup.launch_options.extra
    )
    return TaskSetup(
        launch_options=ask, program=setup.program, cwd=setup.cwd, inherited_env=setup.inherited_env
    )


def test_an_interrupt_after_the_answer(make: Make, serve: Serve, version: str) -> None:
    """What is done is done."""
    done = interrupted(
        make(serve(say("All is well."))),
        lambda done: any(type(event) is ev.Result for event in done.events),
    )
    assert (done.verdicts, done.report.text) == (["success"], "All is well.")
