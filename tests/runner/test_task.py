"""Tasks with scripted agents: those that misbehave, and what is decided after each end (R3 to R11).

Each run is replayed from its recording with the same report, and leaves no process.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno import event as ev
from steno.agents import LaunchOptions
from steno.errors import StenoError
from steno.ledger.store import open_ledger
from steno.process import GracePeriods
from steno.recording.format import RecordingFile
from steno.report import Cost
from steno.runner.attempt import AgentRun
from steno.runner.retry_policy import VERDICT_PHRASES, RetryPolicy, format_local_time
from steno.runner.setup import RunBudget, TaskSetup, Timeouts
from steno.runner.task import CONTINUE_PROMPT, SUMMARY_PROMPT
from tests.support.claude_lines import (
    MODEL,
    REQUEST_COST,
    SESSION,
    Json,
    answer,
    assistant,
    call,
    failed,
    hello,
    init,
    result,
    share,
    stream,
    system,
    text,
    usage,
)
from tests.support.tasks import Carried, carried, carry_out, left, replayed

ACTOR = Path(__file__).parents[1] / "scripted_agents" / "step_player.py"
QUICK = GracePeriods(interrupt=0.3, terminate=0.3, kill=3.0, quiet=0.3, drain=1.0)
ONCE = RetryPolicy(attempts=1)
GROWS: Any = {"asked": {"max_turns": 5}, "budget": RunBudget(turns=99)}  # resumes after TURNS
PATIENT = RetryPolicy(max_wait=None)
LONG = 60.0  # seconds: bounds that only a hang breaks

Step = tuple[str, Any]
Play = Callable[..., TaskSetup]


def out(*lines: Json) -> Step:
    """Lines on stdout."""
    return ("out", stream(*lines).decode())


WORK = out(init(), assistant(text("Half way.")))
DONE = out(init(), assistant(text("Done.")), result())
TURNS = out(
    init(),
    assistant(text("More to do.")),
    result(None, subtype="error_max_turns", is_error=True, errors=["Reached maximum"]),
)
REFUSED = out(init(), failed("API Error: Unable to connect to API (ConnectionRefused)"))
BROKEN = out(init(), assistant(text("Half way.")), failed("API Error: 500 internal error"))
LIMITED = out(
    init(),
    failed("You've hit your 5-hour limit · resets 3pm (UTC)", api_error="usage_limit_reached"),
)
WAITS: Step = ("sleep", 600)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Makes a set-up whose attempts play one script after another; the last one is repeated."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)

    def made(*scripts: list[Step], asked: Json | None = None, **more: Any) -> TaskSetup:
        for number, steps in enumerate(scripts):
            (tmp_path / f"script-{number:03d}").write_text(json.dumps(steps))
        program = tmp_path / "agent"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {ACTOR} {tmp_path} "$@"\n')
        program.chmod(0o755)
        ask = LaunchOptions(**{"prompt": "Do the work.", **(asked or {})})
        return TaskSetup(
            launch_options=ask, program=str(program), cwd=str(tmp_path), **{"grace": QUICK, **more}
        )

    return made


def asked(setup: TaskSetup) -> list[tuple[str, str]]:
    """Prompt and session of each attempt: "new", or the resumed one."""
    results = []
    for path in sorted(Path(setup.cwd or "").glob("asked-*")):
        value = json.loads(path.read_text())
        words = value["words"]
        results.append(
            (value["prompt"], words[words.index("--resume") + 1] if "--resume" in words else "new")
        )
    return results


def notes(run: AgentRun) -> list[str]:
    """The notes in a run's recording."""
    assert run.recording_path is not None
    return [
        tick.data.decode()
        for tick in RecordingFile(run.recording_path).records()
        if tick.code == "note"
    ]


def stops(run: AgentRun) -> list[tuple[str, int | None]]:
    """How we ended a run."""
    assert run.recording_path is not None
    return [
        (tick.data.decode(), tick.number)
        for tick in RecordingFile(run.recording_path).records()
        if tick.code == "stop"
    ]


# -- agents that misbehave -----------------------------------------------------------------------


def test_a_grandchild_that_keeps_stdout_open(play: Play) -> None:
    """R3: the task finishes soon after the agent's exit, and lists orphans."""
    begun = time.monotonic()
    done = carry_out(play([DONE, ("hold", "stdout")]))
    took = time.monotonic() - begun
    assert done.verdicts == ["success"]
    assert [warning.partition(" and ")[2] for warning in done.report.warnings] == [
        "was stopped with signal 15: sleep 600"
    ]
    assert took < QUICK.quiet + QUICK.terminate + LONG / 6


def test_a_grandchild_that_keeps_stdout_open_when_time_is_up(play: Play) -> None:
    """R3: the task finishes within timeout and grace periods, whatever stays open."""
    begun = time.monotonic()
    done = carry_out(
        play([("ignore", None), WORK, ("hold", "stdout"), WAITS], timeouts=Timeouts(timeout=0.5))
    )
    took, most = (
        time.monotonic() - begun,
        0.5 + QUICK.interrupt + QUICK.terminate + QUICK.kill + QUICK.drain,
    )
    sys.stdout.write(f"over after {took:.2f} s; the clock and the graces are {most:.2f} s\n")
    assert (done.verdicts, done.report.exit_code) == (["timeout"], -signal.SIGKILL)
    assert took < most + LONG / 6  # to start Python twice on a machine that is busy


def test_a_daemon_in_a_session_of_its_own(play: Play) -> None:
    """R4: found, ended and named."""
    done = carry_out(play([DONE, ("hold", "daemon")]))
    assert done.verdicts == ["success"]
    assert [warning.partition(" and ")[2] for warning in done.report.warnings] == [
        "was stopped with signal 15: sleep 600"
    ]


def test_what_may_stay_stays(play: Play) -> None:
    """It is named, and left alone."""
    with carried(play([DONE, ("hold", "daemon")], keep_orphans=True)) as done:
        done.finish()
        warning = done.report.warnings[0]
        assert warning.endswith("outlived the agent and was left running: sleep 600")
        os.kill(int(warning.split()[2]), signal.SIGKILL)
        until = time.monotonic() + LONG
        while left():  # a process that was killed lives on for a moment
            assert time.monotonic() < until
            time.sleep(0.01)


def test_it_ignores_every_signal_but_one(play: Play) -> None:
    """R4: interrupt, terminate, kill, within the clock and its graces."""
    begun = time.monotonic()
    done = carry_out(play([("ignore", None), WORK, WAITS], timeouts=Timeouts(timeout=0.5)))
    took = time.monotonic() - begun
    assert (done.verdicts, done.report.exit_code) == (["timeout"], -signal.SIGKILL)
    why = "timeout: timed out after 0.5 s (--timeout)"
    assert stops(done.runs[0]) == [
        (why, signal.SIGINT),
        (why, signal.SIGTERM),
        (why, signal.SIGKILL),
    ]
    assert took < 0.5 + QUICK.interrupt + QUICK.terminate + QUICK.kill + LONG / 6


def test_a_loud_stderr(play: Play) -> None:
    """200 MB of it, and nothing is lost."""
    done = carry_out(play([out(init()), ("loud", 200), out(assistant(text("Done.")), result())]))
    assert done.runs[0].recording_path is not None
    assert done.runs[0].recording_path.stat().st_size > 200_000_000
    done.runs[0].recording_path.unlink()
    assert (done.verdicts, sum(type(event) is ev.Stderr for event in done.events)) == (
        ["success"],
        200_000,
    )


def test_long_lines(play: Play) -> None:
    """Lines of 5 MB, known and unknown."""
    words = "word " * 1_000_000
    done = carry_out(
        play([out(init(), assistant(text(words))), ("long", [2, 5_000_000]), out(result(words))])
    )
    assert (done.verdicts, len(done.report.text), done.report.lines.unknown) == (
        ["success"],
        len(words),
        2,
    )


def test_it_closes_stdout_and_keeps_running(play: Play) -> None:
    """After its result that is an end; before it, a stall."""
    after = carry_out(play([DONE, ("close", None), ("sleep", 0.2)]))
    before = carry_out(
        play([DONE], [WORK, ("close", None), WAITS], timeouts=Timeouts(silence=0.4), policy=ONCE)
    )
    assert (after.verdicts, before.verdicts) == (["success"], ["stalled"])


def test_it_drops_what_the_pipe_does_not_take(play: Play) -> None:
    """As Claude Code did up to 2.1.197, with exit code 0: detected and reported."""
    done = carry_out(
        play(
            [out(init(), assistant(text("Done."))), ("drop", result("word " * 1_000_000))],
            policy=ONCE,
        )
    )
    assert (done.verdicts, done.report.complete, done.report.lines.torn, done.report.exit_code) == (
        ["no_result"],
        False,
        True,
        0,
    )
    assert done.report.error == "the stream ended without a result (last line truncated)"


def test_it_never_reads_its_prompt(play: Play) -> None:
    """An agent that exits before it reads the prompt."""
    done = carry_out(play([("deaf", None)], asked={"prompt": "x" * 1_000_000}, policy=ONCE))
    assert (done.verdicts, done.report.exit_code) == (["no_result"], 0)


def test_it_is_not_there(play: Play) -> None:
    """Said as a shell says it; not tried again."""
    done = carry_out(msgspec.structs.replace(play([DONE]), program="/no/such/agent"))
    assert (done.verdicts, done.report.exit_code) == (["not_found"], 127)
    assert done.report.error == "steno: cannot start /no/such/agent: No such file or directory"


# -- clocks (R3) ---------------------------------------------------------------------------------

CALL = out(init(), assistant(call("toolu_1", "Bash", command="make")))
AWAY = system(
    "task_started",
    task_id="t1",
    tool_use_id="toolu_1",
    task_type="local_bash",
    is_backgrounded=True,
)
TASK = out(
    init(),
    assistant(call("toolu_1", "Bash", command="serve", run_in_background=True)),
    AWAY,
    answer("toolu_1"),
)
CLOCKS = {
    "first output": (
        [WAITS],
        Timeouts(first_output=0.3, silence=LONG),
        "stalled",
        "stalled: no output for 0 s",
        "stopped by steno: no output within 0.3 s of the start (--first-output)",
    ),
    "silence": (
        [WORK, WAITS],
        Timeouts(first_output=LONG, silence=0.3),
        "stalled",
        "stalled: no output for 0 s",
        "stopped by steno: no output for 0.3 s (--silence)",
    ),
    "a tool": (
        [CALL, WAITS],
        Timeouts(silence=0.1, tool_silence=0.6),
        "stalled",
        "stalled: no output for 1 s",
        "stopped by steno: no output for 0.6 s while a tool ran (--tool-silence)",
    ),
    "after the result": (
        [DONE, WAITS],
        Timeouts(after_result=0.3),
        "success",
        "after_result: no output for 0 s",
        None,
    ),
    "in the background": (
        [TASK, out(assistant(text("It runs."), message="msg_2"), result("It runs.")), WAITS],
        Timeouts(after_result=0.1, background=0.6),
        "background_task",
        "after_result: no output for 1 s",
        None,
    ),
    "a failure that lingers": (
        [BROKEN, WAITS],
        Timeouts(after_result=0.3),
        "api",
        "after_result: no output for 0 s",
        ...,
    ),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks(play: Play, name: str) -> None:
    """Each has its own end, and says which it was; none is taken for another."""
    script, clocks, word, note, error = CLOCKS[name]
    done = carry_out(play(script, timeouts=clocks, policy=ONCE))
    assert error is ... or done.report.error == error
    assert (done.verdicts, notes(done.runs[0])[0]) == ([word], note)
    assert [number for _, number in stops(done.runs[0])] == [signal.SIGINT]
    assert (
        "the agent kept running after its result; steno stopped it" in done.report.warnings
    ) == note.startswith("after")


def test_a_clock_for_all_of_it(play: Play) -> None:
    """An agent that is never silent is ended too, and not started again."""
    talk = [out(assistant(text("and"), message=f"msg_{number}")) for number in range(100)]
    done = carry_out(
        play(
            [WORK, *(step for line in talk for step in (line, ("sleep", 0.05)))],
            timeouts=Timeouts(timeout=0.6),
        )
    )
    assert (done.verdicts, done.report.error) == (
        ["timeout"],
        "stopped by steno: timed out after 0.6 s (--timeout)",
    )


def test_work_that_continues_after_a_result(play: Play) -> None:
    """Finished background work starts a new turn: --after-result does not apply to it."""
    ended = out(
        system("task_notification", task_id="t1", tool_use_id="toolu_1", status="completed"), init()
    )
    output = [
        out(assistant(text(f"{word}."), message=word), result(f"{word}."))
        for word in ("Started", "Over")
    ]
    done = carry_out(
        play(
            [TASK, output[0], ended, ("sleep", 1.0), output[1]],
            timeouts=Timeouts(after_result=0.3, background=LONG),
        )
    )
    assert (done.verdicts, done.report.result, stops(done.runs[0])) == (["success"], "Over.", [])


# -- ends that a person asks for -----------------------------------------------------------------


def test_an_interrupt_is_not_tried_again(play: Play) -> None:
    """Whatever the policy says of the word."""
    policy = RetryPolicy(resume_on=("interrupted", "no_result", "stalled"))
    with carried(play([WORK, WAITS], policy=policy)) as done:
        done.until(lambda: any(type(event) is ev.Text for event in done.events))
        done.task.stop("interrupted")
        done.task.stop("timeout")
        done.finish()
    assert (done.verdicts, done.whys, stops(done.runs[0])) == (
        ["interrupted"],
        ["interrupted"],
        [("interrupted", signal.SIGINT)],
    )


def test_the_second_time_it_is_killed(play: Play) -> None:
    """Without any grace."""
    with carried(play([("ignore", None), WORK, WAITS], grace=GracePeriods())) as done:
        done.until(lambda: any(type(event) is ev.Text for event in done.events))
        done.task.stop("interrupted")
        done.task.kill()
        done.finish()
    assert (done.verdicts, stops(done.runs[0])) == (
        ["interrupted"],
        [("interrupted", 2), ("interrupted", 9)],
    )


@pytest.mark.parametrize(("how", "word"), [("stop", "interrupted"), ("kill", "killed")])
def test_an_end_while_it_waits(play: Play, how: str, word: str) -> None:
    """The wait is given up; the last attempt says how the task stands."""
    with carried(play([LIMITED], policy=PATIENT)) as done:
        done.until(lambda: done.task.waits_until is not None)
        getattr(done.task, how)(word)
        done.finish()
    assert (done.verdicts, done.said[1:]) == (["rate_limit"], [f"{word}; no longer waiting"])


# -- what comes next -----------------------------------------------------------------------------


def test_twice_the_turns_up_to_a_bound(play: Play) -> None:
    """R6."""
    setup = play([TURNS], asked={"max_turns": 3}, budget=RunBudget(turns=30), policy=ONCE)
    done = carry_out(setup)
    assert [run.launch_options.max_turns for run in done.runs] == [3, 6, 12, 9]
    assert asked(setup) == [("Do the work.", "new"), *[(CONTINUE_PROMPT, SESSION)] * 3]
    assert done.whys[-1] == "turn limit of the task reached (--max-turns)"
    assert (done.verdicts, done.waits) == (["max_turns"] * 4, [])


def test_a_limit_of_turns_is_the_whole_task_s(play: Play) -> None:
    """R6: attempts share it, whatever they end with."""
    done = carry_out(play([BROKEN], [BROKEN], [DONE], asked={"max_turns": 2}))
    assert [run.launch_options.max_turns for run in done.runs] == [2, 1]
    assert done.whys[-1] == "turn limit of the task reached (--max-turns)"


def test_a_limit_of_turns_does_not_grow_by_itself(play: Play) -> None:
    """R6: only a range does."""
    policy = RetryPolicy(resume_on=("max_turns", "api"))
    done = carry_out(play([TURNS], asked={"max_turns": 20}, policy=policy))
    assert (done.verdicts, done.whys) == (
        ["max_turns"],
        ["turn limit of the task reached (--max-turns)"],
    )


def test_an_agent_that_exceeds_its_limit_of_turns(play: Play) -> None:
    """Background work that has finished starts turns that Claude Code does not count."""
    lines = [out(assistant(text("and"), message=f"msg_{number}")) for number in range(9)]
    steps = [step for line in lines for step in (line, ("sleep", 0.05))]
    done = carry_out(play([out(init()), *steps, WAITS], asked={"max_turns": 3}))
    assert (done.verdicts, done.report.ok) == (["max_turns"], False)
    assert done.report.error == "stopped by steno: turn limit reached (3)"
    assert stops(done.runs[0])[0] == ("max_turns: turn limit reached (3)", signal.SIGINT)
    assert done.report.requests is not None
    assert done.report.requests < 9


def test_turns_that_are_used_up_with_the_last_word(play: Play) -> None:
    """What is done is done."""
    assert carry_out(play([DONE], asked={"max_turns": 1})).verdicts == ["success"]


# -- the deadline --------------------------------------------------------------------------------


def deadline(seconds: float, **more: Any) -> RetryPolicy:
    return RetryPolicy(deadline=time.time() + seconds, **more)


def test_a_deadline_ends_the_run(play: Play) -> None:
    """Nothing is tried again after it."""
    done = carry_out(play([WORK, WAITS], policy=deadline(0.5, resume_on=("timeout", "no_result"))))
    assert (done.verdicts, done.report.error) == (
        ["timeout"],
        "stopped by steno: deadline of the task reached (--deadline)",
    )
    assert done.whys == ["timeout: deadline of the task reached (--deadline)"]


def test_a_deadline_before_the_next_attempt(play: Play) -> None:
    """It is not waited for in vain: the task ends at once, with what happened last."""
    done = carry_out(play([BROKEN], policy=deadline(LONG, attempts=99)))
    assert done.verdicts[-1] == "api"
    assert done.whys[-1] == (
        "API error; the next attempt would start after the deadline (--deadline)"
    )
    assert sum(done.waits) < LONG
    done = carry_out(play([LIMITED], policy=deadline(1, max_wait=None)))
    assert (done.verdicts, done.waits) == (["rate_limit"], [])
    assert done.report.limits.resets_at is not None
    assert "after the deadline (--deadline)" in done.whys[0]


def test_a_deadline_while_it_hands_over(play: Play) -> None:
    """The summary of a resumed session is not the task's result."""
    done = carry_out(play([FULL], [out(init()), WAITS], policy=deadline(3), **GROWS))
    assert done.verdicts == ["max_turns", "timeout"]


def test_failures_are_tried_again_ever_later(play: Play) -> None:
    """R7: what was done is gone on with."""
    setup = play([BROKEN], [BROKEN], [DONE])
    done = carry_out(setup)
    assert (done.verdicts, [round(wait) for wait in done.waits]) == (
        ["api", "api", "success"],
        [2, 4],
    )
    assert asked(setup) == [
        ("Do the work.", "new"),
        (CONTINUE_PROMPT, SESSION),
        (CONTINUE_PROMPT, SESSION),
    ]


def test_a_resumed_session_is_not_lost_to_a_failure(play: Play) -> None:
    """No request was made: the same attempt again, in the same session."""
    setup = play([TURNS], [REFUSED], [DONE], **GROWS)
    done = carry_out(setup)
    assert done.verdicts == ["max_turns", "network", "success"]
    assert asked(setup) == [
        ("Do the work.", "new"),
        (CONTINUE_PROMPT, SESSION),
        (CONTINUE_PROMPT, SESSION),
    ]
    setup = play([REFUSED], [DONE], asked={"resume": SESSION})
    for path in Path(setup.cwd or "").glob("asked-*"):
        path.unlink()
    assert carry_out(setup).verdicts == ["network", "success"]
    assert asked(setup) == [("Do the work.", SESSION), ("Do the work.", SESSION)]


def test_a_session_that_is_gone_twice(play: Play) -> None:
    """R5: it is replaced once."""
    lost = out(
        result(
            None,
            subtype="error_during_execution",
            is_error=True,
            num_turns=0,
            errors=["No conversation found"],
        )
    )
    setup = play(
        [lost],
        [TURNS],
        [lost],
        asked={"resume": "a1", "max_turns": 5},
        budget=RunBudget(turns=99),
    )
    done = carry_out(setup)
    assert done.verdicts == ["subprocess", "max_turns", "subprocess"]
    assert asked(setup) == [
        ("Do the work.", "a1"),
        ("Do the work.", "new"),
        (CONTINUE_PROMPT, SESSION),
    ]
    assert done.said[0] == "session a1 not found; starting a new one"


def test_a_limit_that_is_never_over(play: Play) -> None:
    """R7: ever longer waits, half an hour in total; they are no attempts."""
    unknown = out(init(), failed("API Error: Request rejected (429)", api_error_status=429))
    done = carry_out(play([unknown], policy=ONCE))
    assert done.verdicts == ["rate_limit"] * 7
    assert done.whys[-1] == "still rate limited after --max-wait (30 min)"
    assert [round(wait) for wait in done.waits[:5]] == [
        pytest.approx(wait, abs=1) for wait in (31.5, 63, 126, 252, 504)
    ]
    assert sum(done.waits) == pytest.approx(1800, abs=5)


def test_a_limit_that_ends_too_late(play: Play) -> None:
    """R7: a known reset beyond --max-wait ends the task at once, with the time in its report."""
    reset = int(time.time()) + 3 * 3600
    limited = out(init(), failed(f"Claude AI usage limit reached|{reset}", api_error_status=429))
    done = carry_out(play([limited]))
    assert (done.verdicts, done.waits, done.report.limits.resets_at) == (["rate_limit"], [], reset)
    until = format_local_time(reset)
    assert done.report.hint == f"the limit resets at {until}; run it again then"
    assert done.whys == [f"rate limited until {until}; that is beyond --max-wait (30 min in total)"]


def test_a_limit_that_is_not_waited_for(play: Play) -> None:
    """With --on-limit fail."""
    done = carry_out(play([LIMITED], policy=RetryPolicy(on_limit="fail")))
    assert (done.whys, done.waits) == (["rate limited; not waiting (--on-limit fail)"], [])


def test_another_model_stays_until_the_limit_is_over(play: Play) -> None:
    """R11: later attempts use the fallback model; after a wait, the first model again."""
    policy = RetryPolicy(on_limit="fallback", fallback_model="small", max_wait=None)
    done = carry_out(
        play([LIMITED], [BROKEN], [LIMITED], [DONE], asked={"model": "large"}, policy=policy)
    )
    assert done.verdicts == ["rate_limit", "api", "rate_limit", "success"]
    assert [run.launch_options.model for run in done.runs] == ["large", "small", "small", "large"]


@pytest.mark.parametrize("word", ["timeout", "auth", "permission", "killed", "subprocess"])
def test_what_is_never_tried_again(play: Play, word: str) -> None:
    """Nothing is gained by it."""
    refused = answer(
        "toolu_1",
        "Claude requested permissions to use this tool, but you haven't granted it yet.",
        True,
    )
    scripts: dict[str, list[Step]] = {
        "timeout": [WORK, WAITS],
        "auth": [out(init(), failed("Invalid API key", api_error_status=401))],
        "permission": [CALL, out(refused, assistant(text("I may not.")), result("I may not."))],
        "killed": [WORK, ("exit", 137)],
        "subprocess": [("err", "error: unknown option\n"), ("exit", 1)],
    }
    done = carry_out(
        play(scripts[word], timeouts=Timeouts(timeout=1.0 if word == "timeout" else None))
    )
    assert (done.verdicts, done.whys) == ([word], [f"{VERDICT_PHRASES[word]}; retrying won't help"])


def test_a_key_that_is_tried_again_and_again(play: Play) -> None:
    """The agent's own patience with a rejected key is not ours."""
    again = [
        system("api_retry", attempt=number, error_status=401, error="authentication_failed")
        for number in (1, 2, 3)
    ]
    done = carry_out(play([out(init()), *(out(line) for line in again), WAITS]))
    assert (done.verdicts, stops(done.runs[0])[0]) == (["auth"], ("auth", signal.SIGINT))
    assert done.report.error == "API key rejected (401), also on retry"


# -- handing over (R8) ---------------------------------------------------------------------------

FULL = out(
    init(),
    assistant(text("I have read all of it."), used=usage(read=850_000)),
    result(
        None,
        subtype="error_max_turns",
        is_error=True,
        errors=["Reached maximum"],
        usage=usage(read=850_000),
    ),
)
OVERFULL = out(
    init(),
    assistant(text("So far so good.")),
    failed("Prompt is too long", terminal_reason="prompt_too_long"),
)


def test_a_session_that_cannot_sum_itself_up(play: Play) -> None:
    """What we know of it goes to the new one, and the words of an error do not."""
    too_long = out(init(), failed("Prompt is too long", terminal_reason="prompt_too_long"))
    setup = play([OVERFULL], [too_long], [DONE])
    done = carry_out(setup)
    assert done.verdicts == ["context_full", "context_full", "success"]
    prompt = (
        "[CONTEXT FROM PREVIOUS SESSION]\nThe last that was said:\nSo far so good.\n\n"
        "Files changed:\n- none\n\n"
        "[CURRENT TASK]\nDo the work."
    )
    assert asked(setup) == [("Do the work.", "new"), (SUMMARY_PROMPT, SESSION), (prompt, "new")]
    assert done.whys[1] == "no summary from the agent; continuing in a new session with steno's own"


def test_what_follows_a_handover_keeps_it(play: Play) -> None:
    """A new session that fails at once is begun again with the same words."""
    setup = play(
        [FULL],
        [out(init(), assistant(text("SUMMARY")), result("SUMMARY"))],
        [REFUSED],
        [DONE],
        **GROWS,
    )
    done = carry_out(setup)
    assert done.verdicts == ["max_turns", "success", "network", "success"]
    prompt = "[CONTEXT FROM PREVIOUS SESSION]\nSUMMARY\n\n[CURRENT TASK]\nDo the work."
    assert asked(setup)[2:] == [(prompt, "new"), (prompt, "new")]


def test_an_end_while_it_hands_over(play: Play) -> None:
    """Nothing new is begun."""
    with carried(play([FULL], [out(init()), WAITS], **GROWS)) as done:
        done.until(lambda: len(done.runs) > 1)
        done.task.stop("interrupted")
        done.finish()
    assert (done.verdicts, done.whys[1]) == (["max_turns", "interrupted"], "interrupted")


SUMMARY = out(init(), assistant(text("SUMMARY")), result("SUMMARY"))


def resumed(play: Play, *scripts: list[Step], **more: Any) -> tuple[TaskSetup, Carried]:
    """A task that resumes a session which an earlier task has left 85 % full."""
    full = out(
        init(),
        assistant(text("Done."), used=usage(read=850_000)),
        result("Done.", usage=usage(read=850_000)),
    )
    setup = play([full], policy=ONCE)
    assert carry_out(setup).report.context.fraction == pytest.approx(0.85, abs=0.01)
    for path in Path(setup.cwd or "").glob("asked-*"):
        path.unlink()
    more = {"policy": RetryPolicy(refresh_at=0.5), **more}
    setup = play(
        *scripts, asked={"prompt": "Task 2.", "resume": SESSION, **more.pop("ask", {})}, **more
    )
    return setup, carry_out(setup)


def test_a_full_session_is_not_resumed(play: Play) -> None:
    """Its context is in the ledger: it is asked for a summary, which goes to a new session."""
    setup, done = resumed(play, [SUMMARY], [DONE])
    assert done.verdicts == ["success", "success"]
    prompt = "[CONTEXT FROM PREVIOUS SESSION]\nSUMMARY\n\n[CURRENT TASK]\nTask 2."
    assert asked(setup) == [(SUMMARY_PROMPT, SESSION), (prompt, "new")]
    assert done.said == [
        f"session {SESSION}: context 85% full; asking for a summary",
        "continuing in a new session with the agent's summary",
    ]
    assert rows("SELECT stop FROM sessions") == [("refreshed",)]


def test_a_session_is_titled_by_what_the_user_wanted(play: Play) -> None:
    """Not by steno's own words: those that ask for a summary, and those before the prompt."""
    other = "00000000-0000-4000-8000-000000000002"
    lines = [{**line, "session_id": other} for line in hello()]
    _, done = resumed(play, [SUMMARY], [out(*lines)])
    assert done.verdicts == ["success", "success"]
    titles = dict(rows("SELECT id, title FROM sessions"))
    assert titles == {SESSION: "Do the work.", other: "Task 2."}


@pytest.mark.parametrize(
    "more",
    [
        {"policy": RetryPolicy(refresh_at=0.9)},
        {"ask": {"prompt": "/compact"}},
        {"ask": {"max_turns": 1}},
    ],
    ids=["below the threshold", "a command to the session", "one turn only"],
)
def test_a_session_that_is_resumed_nevertheless(play: Play, more: Json) -> None:
    setup, done = resumed(play, [DONE], **more)
    prompt = more.get("ask", {}).get("prompt", "Task 2.")
    assert (done.verdicts, asked(setup)) == (["success"], [(prompt, SESSION)])


def test_a_resumed_session_without_a_summary(play: Play) -> None:
    """What it knows is not given up: it is resumed."""
    setup, done = resumed(play, [REFUSED], [DONE])
    assert (done.verdicts, done.whys) == (
        ["network", "success"],
        ["no summary from the agent; resuming instead", "done"],
    )
    assert asked(setup) == [(SUMMARY_PROMPT, SESSION), ("Task 2.", SESSION)]


def test_a_budget_that_only_lasts_for_the_first_summary(play: Play) -> None:
    """A summary is not the task's result, also where nothing was before it."""
    _, done = resumed(play, [SUMMARY], budget=RunBudget(tokens=10))
    assert (done.report.verdict, done.report.ok) == ("max_budget", False)
    assert done.report.error == "token budget of the task exhausted"


# -- budgets (R9) --------------------------------------------------------------------------------


def test_a_budget_is_warned_of_and_kept(play: Play) -> None:
    """Each message comes once."""
    lines = [out(assistant(text("word"), message=f"msg_{number}")) for number in range(8)]
    steps = [out(init()), *(step for line in lines for step in (line, ("sleep", 0.05)))]
    done = carry_out(
        play([("ignore", None), *steps, WAITS], budget=RunBudget(tokens=60_000, warn_at=0.5))
    )
    assert done.verdicts == ["max_budget"]
    alerts = [event for event in done.events if isinstance(event, ev.Alert)]
    assert [(alert.kind, alert.level, alert.used, alert.limit) for alert in alerts] == [
        ("tokens", 0.5, 42_010, 60_000)
    ]
    assert notes(done.runs[0]) == [
        "max_budget: budget exhausted",
        "stopped: token budget of the task exhausted",
    ]


def test_a_budget_that_is_reached_with_the_last_word(play: Play) -> None:
    """What is done is done."""
    done = carry_out(play([DONE], budget=RunBudget(cost=0.001)))
    assert (done.verdicts, done.whys) == (["success"], ["done"])


def test_a_budget_is_the_whole_task_s(play: Play) -> None:
    """The attempts share it, and the agent gets the remainder as its limit."""
    done = carry_out(play([BROKEN], [DONE], budget=RunBudget(cost=0.05)))
    assert [run.launch_options.max_cost for run in done.runs] == [
        0.05,
        pytest.approx(0.05 - 0.009037),
    ]


def test_a_budget_that_only_lasts_for_the_summary(play: Play) -> None:
    """A summary is not the task's result."""
    budget = RunBudget(tokens=860_000, turns=99)
    done = carry_out(play([FULL], [DONE], asked={"max_turns": 5}, budget=budget))
    assert done.verdicts == ["max_turns", "success"]
    assert done.whys[-1] == "token budget of the task exhausted"
    assert (done.report.verdict, done.report.ok) == ("max_turns", False)


# -- records -------------------------------------------------------------------------------------


def rows(sql: str) -> list[Any]:
    """From the ledger."""
    store = open_ledger(None, read_only=True)
    try:
        return list(store.query(sql, ()))
    finally:
        store.close()


def test_the_ledger_reports_it_too(play: Play) -> None:
    """A task, its attempts, what was decided, and what each cost."""
    done = carry_out(play([TURNS], [DONE], **GROWS))
    task = rows("SELECT id, verdict, attempts, prompt FROM tasks")
    assert task == [(done.task.id, "success", 2, "Do the work.")]
    runs = rows(
        "SELECT id, task, attempt, why, verdict, cost_nano, source FROM runs ORDER BY attempt"
    )
    assert runs == [
        (run.id, done.task.id, number, why, word, 11_037_000, str(run.recording_path))
        for number, run, why, word in zip((1, 2), done.runs, done.whys, done.verdicts, strict=True)
    ]
    assert done.report.cost.usd == pytest.approx(2 * 0.011037)


def test_a_ledger_that_cannot_be_opened(play: Play, tmp_path: Path) -> None:
    """One warning, and the task continues without it."""
    done = carry_out(play([TURNS], [DONE], ledger=str(tmp_path), **GROWS))
    assert done.verdicts == ["max_turns", "success"]
    assert [line.partition(":")[0] for line in done.said] == [
        "continuing without the ledger",
        "turn limit reached; continuing with up to 10 turns",
    ]


def test_a_listener_that_fails_is_dropped(play: Play) -> None:
    """The run continues, with a warning in the report."""
    output: list[ev.Event] = []

    def fail(run: AgentRun, events: list[ev.Event]) -> None:
        output.extend(events)
        raise ValueError("the screen is gone")

    setup = play(
        [out(init()), ("sleep", 0.1), out(assistant(text("Done.")), result())], record=False
    )
    with carried(setup) as done:
        assert done.task.run is not None
        done.task.run.sinks.insert(0, fail)
        done.finish()
    assert done.report.warnings == [
        "event sink failed and was removed: ValueError: the screen is gone"
    ]
    assert (done.verdicts, [type(event) for event in output]) == (["success"], [ev.Started])


def test_a_tape_that_can_be_written_no_further(play: Play) -> None:
    """A full disk: the run continues, and the partial recording is readable."""
    from steno.process import ProcessLoop
    from steno.runner.task import Task

    with ProcessLoop() as loop, open("/dev/full", "wb") as full:  # noqa: PTH123  # it is a device
        task = Task(
            loop, play([out(init()), ("sleep", 0.3), out(assistant(text("Done.")), result())])
        ).start()
        run = task.run
        assert run is not None
        assert loop.run(loop.clock() + LONG, until=lambda: run.accumulator.started is not None)
        assert run._recorder is not None
        os.dup2(full.fileno(), run._recorder._file)
        assert loop.run(loop.clock() + LONG, until=lambda: task.is_finished)
    assert task.report is not None
    assert task.report.verdict == "success"
    assert task.report.warnings == ["recording incomplete: No space left on device"]
    assert run.recording_path is not None
    cut = replayed(run.recording_path)
    assert (cut.verdict, cut.complete, cut.lines.torn) == ("no_result", False, True)


def test_a_tape_that_cannot_be_made(play: Play, tmp_path: Path) -> None:
    """The first attempt requires a recording; later ones continue without."""
    home = tmp_path / "data" / "steno"

    def spoil(run: AgentRun, events: list[ev.Event]) -> None:
        if any(type(event) is ev.Result for event in events) and (home / "tapes").is_dir():
            (home / "tapes").rename(tmp_path / "kept")
            (home / "tapes").write_text("no folder")

    with carried(play([TURNS], [DONE], **GROWS)) as done:
        assert done.task.run is not None
        done.task.run.sinks.append(spoil)
        done.finish()
        done.runs.clear()  # the first one's tape is elsewhere now
    assert done.verdicts == ["max_turns", "success"]
    assert [warning.partition(":")[0] for warning in done.report.warnings] == [
        "this attempt was not recorded"
    ]
    with pytest.raises(StenoError, match=r"tapes.*cannot create folder"):
        Carried(done.loop, play([DONE]), done.clock).task.start()
    assert rows("SELECT count(*) FROM tasks") == [(1,)]


def test_nothing_is_kept_where_nothing_is_asked_for(play: Play, tmp_path: Path) -> None:
    """Neither recording nor ledger row."""
    assert carry_out(play([DONE], record=False)).verdicts == ["success"]
    assert not (tmp_path / "data").exists()


def test_a_run_that_follows_within_the_same_second_reads_only_its_own_lines(tmp_path: Path) -> None:
    """A session file holds all its runs: earlier ones are excluded by milliseconds."""
    from steno.recording.open import read_transcripts
    from steno.runner.attempt import _transcript_timestamp

    lines = [
        b'{"timestamp":"2026-11-15T14:26:23.%03dZ","n":%d}\n' % (after, after)
        for after in (100, 480, 520, 900)
    ]
    (tmp_path / "kept.jsonl").write_bytes(b"".join(lines))
    began = datetime(2026, 11, 15, 14, 26, 23, 500_000, timezone.utc).timestamp()
    assert list(read_transcripts("*.jsonl", [str(tmp_path)], _transcript_timestamp(began))) == [
        lines[0],
        *lines[2:],
    ]


# -- M7: the totals of a resumed session -----------------------------------------------------------

TWO_RUNS: Json = {
    "result_index": 1,
    "total_cost_usd": 0.022074,
    "modelUsage": {MODEL: share(6, 2002, 40000, 202, 0.022074)},
}


@pytest.mark.parametrize("options", [{"resume": SESSION}, {"continue_": True}])
def test_m7_a_resumed_run_costs_the_difference_to_its_sessions_totals(
    play: Play, tmp_path: Path, options: Json
) -> None:
    """Of a version whose results do not say what is new."""
    folder = tmp_path / "home/.claude/projects/-tmp-demo"
    folder.mkdir(parents=True)
    before = {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": REQUEST_COST}
    before["modelUsage"] = {MODEL: share()}
    later = {"type": "user", "sessionId": SESSION, "timestamp": "2999-01-01T00:00:00.000Z"}
    (folder / f"{SESSION}.jsonl").write_bytes(stream(before, later))
    turn = out(init(), assistant(text("Done."), used=usage(write=500)), result(**TWO_RUNS))
    home = {"HOME": str(tmp_path / "home")}
    task = carry_out(play([turn], asked=options, policy=ONCE, extra_env=home))
    assert task.report.cost == Cost(REQUEST_COST, "reported", 0.022074)
    assert (task.report.tokens.total, task.report.warnings) == (21_105, [])


def test_m7_a_new_session_has_no_earlier_totals(play: Play) -> None:
    turn = out(init(), assistant(text("Done."), used=usage(write=500)), result(**TWO_RUNS))
    task = carry_out(play([turn], policy=ONCE))
    assert task.report.cost == Cost(0.022074, "reported", 0.022074)
    assert (task.report.tokens.total, task.report.warnings) == (42_210, [])
