"""How runs end: every word of V1 is reached, and the rules V2 to V10 choose between them."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.analysis.error_map import VERDICT_HINTS
from steno.report import VERDICTS, BackgroundTask, DeniedCall, Report
from tests.support.claude_lines import (
    CWD,
    SESSION,
    Json,
    answer,
    assistant,
    call,
    denied,
    ended,
    err,
    failed,
    folder,
    hello,
    init,
    out,
    outcome,
    refusal,
    report,
    result,
    stop,
    stream,
    system,
    tape,
    text,
    usage,
    user,
    worked,
)

HALF = [init(), assistant(text("Half way."))]
CUT_OFF = user("[Request interrupted by user]")
NO_SESSION: Json = {
    "errors": ["No conversation found with session ID: x"],
    "subtype": "error_during_execution",
}


def recording(
    path: Path, *lines: Json | bytes, code: int | None = None, stderr: bytes | None = None
) -> Report:
    return steno.read(folder(path / "run", stream(*lines), code, stderr))


def stopped(path: Path, why: str, signal: int, code: int) -> Report:
    """Half a run that we ended ourselves."""
    return steno.read(tape(path / "tape", out(stream(*HALF)), stop(why, signal), ended(code)))


def synthetic(kind: str, words: str, **more: Any) -> Json:
    """The message by which the agent tells that a request failed for good."""
    return assistant(
        text(words),
        model="<synthetic>",
        error=kind,
        is_api_error_message=True,
        used=usage(0, 0, 0, 0),
        **more,
    )


def background(tool: str = "Bash", id_: str = "toolu_1", **more: Any) -> Json:
    return call(id_, tool, description="Long work", run_in_background=True, **more)


HALTED = system("informational", content="Operation stopped by hook: no", prevent_continuation=True)
DECLINED = assistant(text("I"), stop_reason="refusal")
RESUME_HINT = f"to continue: claude --resume {SESSION} -p continue"


def subtype_error(subtype: str) -> Json:
    return result(None, subtype=subtype, is_error=True, error_message="It took too long.")


def ends_after_tool(*, shown: str | None, told: str | None, requests: int = 1) -> list[Json]:
    """A run that reports success after a tool's result, with an empty text.

    `shown` and `told` are the stop reasons of the message and of the result; `requests` are those
    in the result's usage.
    """
    asked = assistant(call("toolu_1", "Bash"), used=usage(3, 1001, 20_000, 1), stop_reason=shown)
    total = usage(*(requests * count for count in (3, 1001, 20_000, 101)))
    return [init(), asked, answer("toolu_1"), result("", usage=total, stop_reason=told)]


# -- V1: every word ------------------------------------------------------------------------------

Case = tuple[str, Callable[[Path], Report]]

CASES: dict[str, Case] = {
    "a plain run": ("success", lambda at: report(*hello())),
    "a plain run that exits 0": ("success", lambda at: recording(at, *hello(), code=0)),
    "a local command": (
        "success",
        lambda at: report(init(), result("", local_command="compact", num_turns=0)),
    ),
    "turns": ("max_turns", lambda at: report(*HALF, result(None, subtype="error_max_turns"))),
    "turns by reason": (
        "max_turns",
        lambda at: report(*HALF, result(None, is_error=True, terminal_reason="max_turns")),
    ),
    "turns as text": (
        "max_turns",
        lambda at: recording(at, b"Error: Reached max turns (1)", code=1),
    ),
    "budget": (
        "max_budget",
        lambda at: report(*HALF, result(None, subtype="error_max_budget_usd", is_error=True)),
    ),
    "a policy": ("policy", lambda at: stopped(at, "policy: max_files: changed files 3", 2, 130)),
    "our budget": ("max_budget", lambda at: stopped(at, "max_budget", 15, 143)),
    "429 by text": (
        "rate_limit",
        lambda at: report(*HALF, failed("API Error: Request rejected (429)")),
    ),
    "429 by status": (
        "rate_limit",
        lambda at: report(*HALF, failed("Slow down.", api_error_status=429)),
    ),
    "usage limit": (
        "rate_limit",
        lambda at: report(*HALF, failed("Later.", api_error="usage_limit_reached")),
    ),
    "429 by the retries": (
        "rate_limit",
        lambda at: report(
            *HALF,
            system("api_retry", attempt=9, max_retries=10, error_status=429, error="rate_limit"),
            failed("[API Error: An unknown error occurred.]"),
        ),
    ),
    "5-hour limit": (
        "rate_limit",
        lambda at: report(*HALF, failed("You've hit your 5-hour limit · resets 3pm (UTC)")),
    ),
    "401 by text": ("auth", lambda at: report(*HALF, failed("API Error: 401 no"))),
    "403 by status": ("auth", lambda at: report(*HALF, failed("No.", api_error_status=403))),
    "not logged in": (
        "auth",
        lambda at: report(*HALF, failed("Not logged in · Please run /login")),
    ),
    "a bad key": (
        "auth",
        lambda at: report(*HALF, failed("Invalid API key · Fix external API key")),
    ),
    "a failed sign-in": (
        "auth",
        lambda at: report(init(), synthetic("authentication_failed", "No."), failed("No.")),
    ),
    "no credit": (
        "billing",
        lambda at: report(*HALF, failed("Credit balance is too low", api_error_status=400)),
    ),
    "402 by status": ("billing", lambda at: report(*HALF, failed("No.", api_error_status=402))),
    "a billing error": (
        "billing",
        lambda at: report(init(), synthetic("billing_error", "No."), failed("No.")),
    ),
    "quota used up": (
        "billing",
        lambda at: report(*HALF, failed("API Error: 429 insufficient_quota")),
    ),
    "500": ("api", lambda at: report(*HALF, failed("API Error: 500", api_error_status=500))),
    "no detail": ("api", lambda at: report(*HALF, failed(None))),
    "529 with a misleading text": (
        "api",
        lambda at: report(*HALF, failed("not a 429, not a 401", api_error_status=529)),
    ),
    "refused connection": (
        "network",
        lambda at: report(*HALF, failed("API Error: Unable to connect (ECONNREFUSED)")),
    ),
    "reset connection": ("network", lambda at: report(*HALF, failed("API Error: ECONNRESET"))),
    "404": (
        "invalid_request",
        lambda at: report(*HALF, failed("No such model.", api_error_status=404)),
    ),
    "400": (
        "invalid_request",
        lambda at: report(*HALF, failed("Bad field.", api_error_status=400)),
    ),
    "unknown model": (
        "invalid_request",
        lambda at: report(init(), synthetic("model_not_found", "Hm."), failed("Hm.")),
    ),
    "cut off": (
        "no_result",
        lambda at: report(*HALF, failed("Hm.", api_error="max_output_tokens")),
    ),
    "too long": (
        "context_full",
        lambda at: report(*HALF, failed("Prompt is too long", api_error_status=400)),
    ),
    "too long by reason": (
        "context_full",
        lambda at: report(*HALF, failed("Sorry.", terminal_reason="prompt_too_long")),
    ),
    "a refusal": (
        "refused",
        lambda at: report(*HALF, failed("I will not.", stop_reason="refusal")),
    ),
    "the window of the model": (
        "context_full",
        lambda at: report(
            *HALF, failed("API Error: The model has reached its context window limit.")
        ),
    ),
    "the window of the model, by stop_reason": (
        "context_full",
        lambda at: report(*HALF, result("So I", stop_reason="model_context_window_exceeded")),
    ),
    "the window of Gemini": (
        "context_full",
        lambda at: report(
            *HALF,
            failed(
                "The input token count (1200000) exceeds the maximum number of tokens allowed "
                "(1048576).",
                api_error_status=400,
            ),
        ),
    ),
    "the window of OpenAI": (
        "context_full",
        lambda at: report(
            *HALF,
            failed("400 This model's maximum context length is 131072 tokens. However, ..."),
        ),
    ),
    "an error subtype, permission": (
        "permission",
        lambda at: report(*HALF, subtype_error("error_permission_denied")),
    ),
    "an error subtype, time": (
        "timeout",
        lambda at: report(*HALF, subtype_error("error_timeout")),
    ),
    "an error subtype, network": (
        "network",
        lambda at: report(*HALF, subtype_error("error_network")),
    ),
    "an error subtype, request": (
        "invalid_request",
        lambda at: report(*HALF, subtype_error("error_invalid_request")),
    ),
    "HTTP429": ("rate_limit", lambda at: report(*HALF, failed("request failed: HTTP429"))),
    "404 by text": (
        "invalid_request",
        lambda at: report(init(), synthetic("unknown", "Hm."), failed("API Error: 404 {...}")),
    ),
    "a refusal by the last message": (
        "refused",
        lambda at: report(init(), DECLINED, synthetic("invalid_request", "Hm."), failed("Hm.")),
    ),
    "an empty message": ("empty", lambda at: report(init(), result("(no content)"))),
    "an error without an error": (
        "empty",
        lambda at: report(init(), result(None, subtype="error_during_execution")),
    ),
    "killed after the result": ("killed", lambda at: recording(at, *HALF, result(), code=143)),
    "killed after the result, -9": ("killed", lambda at: recording(at, *HALF, result(), code=137)),
    "a permission": (
        "permission",
        lambda at: report(*HALF, result(permission_denials=[denied("t", "Bash", command="ls")])),
    ),
    "stopped by a hook": (
        "stopped",
        lambda at: report(*HALF, result("Half done.", terminal_reason="hook_stopped")),
    ),
    "stopped at its end by a hook": (
        "stopped",
        lambda at: report(*HALF, result("Done.", terminal_reason="stop_hook_prevented")),
    ),
    "a prompt stopped by a hook": (
        "stopped",
        lambda at: report(init(), HALTED, result("Stopped.")),
    ),
    "stopped by a hook of an old version": (
        "stopped",
        lambda at: report(*ends_after_tool(shown=None, told="tool_use")),
    ),
    "a loop": (
        "stopped",
        lambda at: report(*HALF, failed("Loop detected.", terminal_reason="loop_detected")),
    ),
    "a question": ("interactive", lambda at: report(*HALF, result("Which one?"))),
    "work left running": (
        "background_task",
        lambda at: report(init(), assistant(background()), answer("toolu_1"), result()),
    ),
    "nothing said": ("empty", lambda at: report(init(), result(""))),
    "nothing at all said": ("empty", lambda at: report(init(), result(None))),
    "no end": ("no_result", lambda at: report(*HALF)),
    "no end but exit 0": ("no_result", lambda at: recording(at, *HALF, code=0)),
    "stalled": ("stalled", lambda at: stopped(at, "stalled", 15, -9)),
    "timeout": ("timeout", lambda at: stopped(at, "timeout", 15, -15)),
    "interrupted by us": (
        "interrupted",
        lambda at: stopped(at, "interrupted", 2, 0),
    ),
    "interrupted by SIGINT": ("interrupted", lambda at: recording(at, *HALF, code=-2)),
    "interrupted, told by a shell": ("interrupted", lambda at: recording(at, *HALF, code=130)),
    "interrupted, told by a marker": (
        "interrupted",
        lambda at: recording(at, *HALF, CUT_OFF, code=0),
    ),
    "interrupted, told by the result": (
        "interrupted",
        lambda at: recording(
            at,
            *HALF,
            user("[Request interrupted by user]"),
            result(
                None,
                subtype="error_during_execution",
                is_error=True,
                terminal_reason="aborted_streaming",
            ),
            code=0,
        ),
    ),
    "killed by us": ("killed", lambda at: stopped(at, "killed", 9, -9)),
    "killed": ("killed", lambda at: recording(at, *HALF, code=-9)),
    "killed, told by a shell": ("killed", lambda at: recording(at, *HALF, code=137)),
    "ended": ("killed", lambda at: recording(at, *HALF, code=143)),
    "hung up": ("killed", lambda at: recording(at, *HALF, code=129)),
    "wrong option": (
        "subprocess",
        lambda at: recording(at, code=1, stderr=b"error: unknown option '--sing'\n"),
    ),
    "silent failure": ("subprocess", lambda at: recording(at, code=3)),
    "failed at start": ("subprocess", lambda at: report(failed("", num_turns=0, **NO_SESSION))),
    "not there": ("not_found", lambda at: recording(at, code=127, stderr=b"claude: not found\n")),
    "never started": ("not_found", lambda at: steno.read(tape(at / "t", ended(None)))),
}


@pytest.mark.parametrize("name", CASES)
def test_v1_each_ending_has_its_word(name: str, tmp_path: Path) -> None:
    word, make = CASES[name]
    found = make(tmp_path)
    assert found.verdict == word
    assert found.ok is (word == "success")
    assert (found.hint is None) is (word == "success")


def test_v1_every_word_is_reached() -> None:
    assert {word for word, _ in CASES.values()} == set(VERDICTS)


CATEGORIES = {
    "429 by text": "rate_limit",
    "401 by text": "auth",
    "no credit": "auth",
    "500": "api",
    "a question": "interactive",
    "work left running": "background-task",
    "wrong option": "subprocess",
    "timeout": "timeout",
    "a plain run": None,
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_s_each_category_is_one_of_the_fixed_words(name: str, tmp_path: Path) -> None:
    assert CASES[name][1](tmp_path).error_category == CATEGORIES[name]


def test_v1_the_evidence_is_the_lines_that_say_so() -> None:
    limit = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}}
    found = report(*HALF, limit, synthetic("rate_limit", "Slow down."), failed("Slow down. (429)"))
    assert (found.verdict, found.evidence) == ("rate_limit", [3, 4, 5])
    assert report(*hello()).evidence == [3]


def test_v1_the_hint_says_how_to_continue() -> None:
    assert SESSION in (report(*HALF, result(None, subtype="error_max_turns")).hint or "")


# -- V2, V4: structured fields first -------------------------------------------------------------


def test_v2_a_status_wins_over_the_words() -> None:
    found = report(*HALF, failed("401 unauthorized? no: rate limit", api_error_status=500))
    assert found.verdict == "api"


def test_v2_the_agents_own_word_wins_over_the_words_of_the_text() -> None:
    assert (
        report(
            init(), synthetic("server_error", "429?"), failed("429?", api_error_status=503)
        ).verdict
        == "api"
    )


def test_v4_an_error_subtype_without_is_error_is_a_failure() -> None:
    found = report(*HALF, result(None, subtype="error_during_execution", errors=["one", "two"]))
    assert (found.verdict, found.ok, found.error) == ("api", False, "one\ntwo")


def test_v2_a_failure_that_was_overcome_is_none() -> None:
    found = report(
        init(),
        synthetic("server_error", "Overloaded"),
        assistant(text("Here."), message="msg_2"),
        result("Here."),
    )
    assert (found.verdict, found.ok) == ("success", True)


# -- V5: ended by asking -------------------------------------------------------------------------


def hang(found: Report) -> tuple[str, bool, str | None, str | None, list[str]]:
    prefixes = [note.partition(":")[0] for note in found.warnings]
    return found.verdict, found.ok, found.error, found.error_category, prefixes


HANG = ("interactive", False, None, "interactive", ["interactive-hang"])


def test_v5_a_question_after_one_turn_is_a_hang() -> None:
    assert hang(report(init(), assistant(text("Which file?")), result("Which file?"))) == HANG


@pytest.mark.parametrize("stop_reason", [None, "end_turn", "tool_use"])
def test_v5_the_stop_reason_may_be_anything(stop_reason: str | None) -> None:
    assert hang(report(init(), result("Which file?  \n", stop_reason=stop_reason))) == HANG


def test_v5_a_question_after_turns_that_changed_nothing_is_a_hang() -> None:
    looked = [assistant(call("toolu_1", "Read", file_path="a")), answer("toolu_1")]
    assert hang(report(init(), *looked, result("Shall I go on?", num_turns=2))) == HANG


@pytest.mark.parametrize("tool", ["Write", "Edit", "Bash"])
def test_v5_a_question_after_finished_work_is_no_hang(tool: str) -> None:
    did = [
        assistant(call("toolu_1", tool, file_path=f"{CWD}/a", command="make")),
        answer("toolu_1"),
    ]
    found = report(init(), *did, result("Done. Shall I also tidy up?", num_turns=2))
    assert (found.verdict, found.ok, found.warnings) == ("success", True, [])


def test_v5_work_that_failed_is_no_finished_work() -> None:
    tried = [
        assistant(call("toolu_1", "Write", file_path=f"{CWD}/a")),
        answer("toolu_1", "disk full", True),
    ]
    assert hang(report(init(), *tried, result("Shall I try again?", num_turns=2))) == HANG


def test_v5_a_question_inside_the_text_is_no_hang() -> None:
    assert report(init(), result("Why? Because it works.")).verdict == "success"


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_v5_a_question_tool_in_the_last_turn_without_an_answer(tool: str) -> None:
    asked = assistant(text("I need to know."), call("toolu_1", tool))
    assert hang(report(init(), asked, result("I need to know."))) == HANG
    assert (
        hang(
            report(
                init(), asked, answer("toolu_1", "not available", True), result("I need to know.")
            )
        )
        == HANG
    )


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_v5_a_question_tool_that_was_answered_or_passed_over(tool: str) -> None:
    asked = assistant(call("toolu_1", tool))
    assert (
        report(init(), asked, answer("toolu_1", "the red one"), result("Red it is.")).verdict
        == "success"
    )
    onward = assistant(text("Then I take red."), message="msg_2")
    passed = [
        init(),
        asked,
        answer("toolu_1", "not available", True),
        onward,
        result("Then I take red.", num_turns=2),
    ]
    assert report(*passed).verdict == "success"


def test_v5_a_subagent_may_ask() -> None:
    inner = assistant(call("toolu_2", "AskUserQuestion"), message="msg_2", parent="toolu_1")
    lines = [
        init(),
        assistant(call("toolu_1", "Task")),
        inner,
        answer("toolu_1"),
        result("Fine.", num_turns=2),
    ]
    assert report(*lines).verdict == "success"


# -- V6: background work -------------------------------------------------------------------------


WAITING = [
    "I am waiting on it.",
    "Still waiting.",
    "Continuing.",
    "It is IN PROGRESS",
    "It runs in the background",
]


def started(call_id: str = "toolu_1", kind: str = "local_bash") -> Json:
    return system(
        "task_started",
        task_id="b1",
        tool_use_id=call_id,
        task_type=kind,
        is_backgrounded=True,
        description="Long work",
    )


def notified(status: str = "completed", call_id: str = "toolu_1") -> Json:
    return system(
        "task_notification", task_id="b1", tool_use_id=call_id, status=status, summary="over"
    )


def updated(status: str) -> Json:
    return system("task_updated", task_id="b1", patch={"status": status})


@pytest.mark.parametrize("tool", ["Bash", "Task", "Agent"])
def test_v6_work_that_was_not_seen_to_end(tool: str) -> None:
    found = report(
        init(), assistant(background(tool)), answer("toolu_1"), result("Started it.", num_turns=3)
    )
    assert (found.verdict, found.ok, found.error, found.error_category) == (
        "background_task",
        False,
        None,
        "background-task",
    )
    assert [note.partition(":")[0] for note in found.warnings] == ["background-task"]
    assert [(task.id, task.status) for task in found.background] == [("toolu_1", "running")]


@pytest.mark.parametrize(
    "end", [notified("completed"), notified("failed"), notified("stopped"), updated("completed")]
)
def test_v6_work_that_was_seen_to_end_is_not_pending(end: Json) -> None:
    lines = [
        init(),
        assistant(background()),
        started(),
        answer("toolu_1"),
        end,
        result("All is built.", num_turns=3),
    ]
    found = report(*lines)
    status = end.get("status") or end["patch"]["status"]
    assert (found.verdict, found.ok) == ("success", True)
    assert (found.warnings == []) is (status != "stopped")
    assert found.background == [BackgroundTask("toolu_1", "shell", "Long work", status)]


@pytest.mark.parametrize("text", ["Started it.", "All is built.", "It runs in the background."])
@pytest.mark.parametrize("status", ["stopped", "killed"])
def test_v6_work_that_was_stopped_after_the_result(status: str, text: str) -> None:
    lines = [init(), assistant(background()), started(), answer("toolu_1")]
    found = report(*lines, result(text, num_turns=3), updated(status))
    assert (found.verdict, found.ok) == ("background_task", False)
    assert found.warnings == [
        "background-task: 1 not finished: Long work",
        "1 background task stopped before completion: Long work",
    ]


def test_v6_work_that_failed_after_the_result_is_named() -> None:
    lines = [init(), assistant(background()), started(), answer("toolu_1")]
    end = result("All is built.", num_turns=3)
    found = report(*lines, end, notified("failed"))
    assert (found.verdict, found.ok) == ("success", False)
    assert found.warnings == [
        "background-task: 1 background task failed after the result: Long work"
    ]
    assert report(*lines, notified("failed"), end).warnings == []


def test_v6_a_later_turn_that_answers_the_work() -> None:
    """An array of events has no task events: only the origin of the second result says it."""
    lines = [init(), assistant(background()), answer("toolu_1"), result("Waiting.", uuid="r1")]
    origin = {"kind": "task-notification"}
    end = result("What ran in the background is done.", num_turns=1, uuid="r2")
    found = report(*lines, {**end, "origin": origin})
    assert found.verdict == "success"
    assert [task.status for task in found.background] == ["ended"]
    assert report(*lines, end).verdict == "background_task"


def test_v6_one_answer_is_for_one_task() -> None:
    lines = [
        init(),
        assistant(background(), background(id_="toolu_2")),
        answer("toolu_1"),
        answer("toolu_2"),
        result("Waiting.", uuid="r1"),
        {**result("One is done.", uuid="r2"), "origin": {"kind": "task-notification"}},
    ]
    assert report(*lines).warnings[0] == "background-task: 1 not finished: toolu_2"


def test_a_hook_that_stopped_an_earlier_turn() -> None:
    lines = [init(), HALTED, result("Stopped.", uuid="r1"), assistant(text("Done."))]
    assert report(*lines, result("Done.", uuid="r2")).verdict == "success"


HOOK = "a hook stopped the run"
HOOK_OR_CUT = (
    "the run ended after a tool result, without an answer: a hook stopped it, "
    "or the answer was cut off or empty"
)


@pytest.mark.parametrize(
    ("shown", "told", "error"),
    [
        pytest.param("tool_use", None, HOOK_OR_CUT, id="1.0.128 to 2.0.76"),
        pytest.param(None, None, HOOK_OR_CUT, id="2.1.30"),
        pytest.param(None, "tool_use", HOOK, id="2.1.63, 2.1.84"),
    ],
)
def test_a_success_after_a_tool_result_without_an_answer(
    shown: str | None, told: str | None, error: str
) -> None:
    found = report(*ends_after_tool(shown=shown, told=told))
    assert (found.verdict, found.error, found.ok) == ("stopped", error, False)


def test_an_error_without_a_reason_after_a_tool_result() -> None:
    """1.0.60 and 1.0.72: a hook, a cut or an empty answer, whose requests count twice."""
    *lines, last = ends_after_tool(shown="tool_use", told=None, requests=2)
    del last["result"]
    found = report(*lines, {**last, "subtype": "error_during_execution"})
    assert (found.verdict, found.error) == ("stopped", HOOK_OR_CUT)


def test_a_lone_result_whose_last_message_called_a_tool() -> None:
    found = report(result("", stop_reason="tool_use"))
    assert (found.verdict, found.error) == ("stopped", HOOK)


@pytest.mark.parametrize(("shown", "told"), [("tool_use", None), (None, None), (None, "end_turn")])
def test_an_empty_answer_after_work_is_no_stop(shown: str | None, told: str | None) -> None:
    """The totals have one more request than the stream: the model answered, with nothing."""
    lines = ends_after_tool(shown=shown, told=told, requests=2)
    assert report(*lines).verdict == "success"


def test_an_answer_of_thinking_only_after_work_is_no_stop() -> None:
    *lines, last = ends_after_tool(shown=None, told=None, requests=2)
    thought = assistant({"type": "thinking", "thinking": "Hm."}, message="msg_2")
    assert report(*lines, thought, last).verdict == "success"


def test_structured_output_after_a_tool_result_is_no_stop() -> None:
    *lines, last = ends_after_tool(shown=None, told="tool_use")
    assert report(*lines, {**last, "structured_output": {"a": 1}}).verdict == "success"


def test_an_empty_success_without_a_request_says_that_the_model_was_not_asked() -> None:
    """A prompt that a hook blocked, up to 2.1.84."""
    found = report(init(), result("", usage=usage(0, 0, 0, 0), modelUsage={}, num_turns=0))
    assert (found.verdict, found.hint) == ("empty", VERDICT_HINTS["no_request"])


def test_a_success_whose_answer_ended_at_the_limit_of_the_window() -> None:
    """1.0.x shows the reason in the message only."""
    cut = assistant(text("Half."), stop_reason="model_context_window_exceeded")
    assert report(init(), cut, result("Half.")).verdict == "context_full"


def test_a_refusal_that_only_the_text_names() -> None:
    """2.1.30 says `invalid_request`, and no stop reason."""
    words = (
        "API Error: Claude Code is unable to respond to this request, which appears to violate "
        "our Usage Policy (https://www.anthropic.com/legal/aup)."
    )
    lines = [init(), synthetic("invalid_request", words), result(words, is_error=True)]
    assert report(*lines).verdict == "refused"


def test_the_error_is_the_hooks_own_message() -> None:
    found = report(init(), HALTED, result("Stopped."))
    assert (found.error, found.evidence) == ("Operation stopped by hook: no", [2, 3])


def test_error_message_is_read() -> None:
    found = report(*HALF, subtype_error("error_timeout"))
    assert (found.error, found.hint) == ("It took too long.", RESUME_HINT)


@pytest.mark.parametrize(
    ("subtype", "error"),
    [
        ("error_permission_denied", "permission denied (no detail)"),
        ("error_timeout", "the agent's own time limit was reached (no detail)"),
        ("error_network", "network error (no detail)"),
        ("error_invalid_request", "request rejected (no detail)"),
    ],
)
def test_an_error_subtype_without_a_text_is_named(subtype: str, error: str) -> None:
    assert report(*HALF, result(None, subtype=subtype, is_error=True)).error == error


@pytest.mark.parametrize(
    "message",
    [
        "The model `gpt-x` does not exist or you do not have access to it.",  # Codex 0.169
        "[API Error: models/nope is not found for API version v1beta]",  # Gemini 0.61
        "ModelNotFoundError: models/nope",
        "Model not found: fake/nope. Did you mean: fake-coder?",  # OpenCode
        "model 'llama9' not found, try pulling it first",  # Ollama
        "Publisher Model `projects/p/models/m` was not found or you lack access",
        "The 'gpt-5-codex' model is not supported when using Codex with a ChatGPT account.",
        "Unknown model: x",
        "code: model_not_found",
    ],
)
def test_a_model_that_is_not_there_is_a_bad_request(message: str) -> None:
    """No status comes with it."""
    assert report(init(), failed(message)).verdict == "invalid_request"


@pytest.mark.parametrize(
    "message",
    ["the model server was not reached", "the model said no", "file not found: models/x.py"],
)
def test_other_words_about_models_are_no_bad_request(message: str) -> None:
    assert report(init(), failed(message)).verdict == "api"


def test_a_denial_without_a_text_names_the_tool() -> None:
    denial = {"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "rm x"}}
    line = result(
        None, subtype="error_permission_denied", is_error=True, permission_denials=[denial]
    )
    found = report(*HALF, line)
    assert (found.verdict, found.error) == ("permission", "permission denied: Bash")


def test_v6_an_update_that_is_no_end_leaves_it_pending() -> None:
    lines = [
        init(),
        assistant(background()),
        started(),
        answer("toolu_1"),
        updated("running"),
        result("On.", num_turns=3),
    ]
    assert report(*lines).verdict == "background_task"


def test_v6_a_subagent_that_goes_to_the_background_by_itself() -> None:
    told = {"isAsync": True, "status": "async_launched", "agentId": "b1"}
    lines = [
        init(),
        assistant(call("toolu_1", "Task")),
        answer("toolu_1", "Async agent launched", tool_use_result=told),
    ]
    assert report(*lines, result("Started it.", num_turns=3)).verdict == "background_task"
    assert report(*lines, notified(), result("It says 42.", num_turns=3)).verdict == "success"


@pytest.mark.parametrize("words", WAITING)
@pytest.mark.parametrize(("turns", "verdict"), [(2, "background_task"), (3, "success")])
def test_v6_a_text_that_still_waits_with_few_turns(words: str, turns: int, verdict: str) -> None:
    lines = [
        init(),
        assistant(background()),
        started(),
        answer("toolu_1"),
        notified(),
        result(words, num_turns=turns),
    ]
    assert report(*lines).verdict == verdict


def test_v6_waiting_words_without_any_launch_are_only_words() -> None:
    assert report(init(), result("The migration is in progress.")).verdict == "success"


def test_v6_a_foreground_task_is_no_background_work() -> None:
    lines = [
        init(),
        assistant(call("toolu_1", "Task", run_in_background=False)),
        answer("toolu_1"),
        result(num_turns=2),
    ]
    found = report(*lines)
    assert (found.verdict, found.background) == ("success", [])


# -- V7: the order -------------------------------------------------------------------------------

ASKS = result("Shall I?")
LAUNCH = [assistant(background()), answer("toolu_1")]
DENIALS: Json = {"permission_denials": [denied("toolu_9", "WebFetch", url="https://example.org/a")]}


def test_v7_not_found_comes_before_everything(tmp_path: Path) -> None:
    found = steno.read(
        tape(tmp_path / "t", err(b"no such program\n"), stop("timeout"), ended(None))
    )
    assert (found.verdict, found.error) == ("not_found", "no such program")


@pytest.mark.parametrize("why", ["timeout", "stalled", "interrupted", "killed"])
def test_v7_our_stop_comes_before_the_agents_error(why: str, tmp_path: Path) -> None:
    end = result(
        None, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"
    )
    found = steno.read(
        tape(tmp_path / "t", out(stream(*HALF)), stop(why), out(stream(end)), ended(0))
    )
    assert found.verdict == why


def test_v7_errors_come_before_advice() -> None:
    assert report(init(), *LAUNCH, failed("Shall I? 429", **DENIALS)).verdict == "rate_limit"
    assert (
        report(init(), *LAUNCH, result("Shall I?", subtype="error_max_turns", **DENIALS)).verdict
        == "max_turns"
    )


def test_v7_the_advice_has_an_order_too() -> None:
    assert report(init(), *LAUNCH, {**ASKS, **DENIALS}).verdict == "interactive"
    assert report(init(), *LAUNCH, result("Started.", **DENIALS)).verdict == "background_task"
    assert report(init(), result("", **DENIALS)).verdict == "permission"
    assert report(init(), result("")).verdict == "empty"


def test_v7_only_one_advice_is_given() -> None:
    warnings = report(init(), *LAUNCH, {**ASKS, **DENIALS}).warnings
    assert [note.partition(":")[0] for note in warnings] == ["interactive-hang"]


# -- V8: permission ------------------------------------------------------------------------------


def refused(*, by: tuple[str, ...], then: bool = False) -> Report:
    """A refused command, told in these ways, and perhaps one of the same tool that worked later."""
    event = system(
        "permission_denied", tool_name="Bash", tool_use_id="toolu_1", message="It needs approval."
    )
    lines = [init(), assistant(call("toolu_1", "Bash", command="rm -rf build"))]
    lines += [event] if "event" in by else []
    lines += (
        [refusal("toolu_1")] if "result" in by else [answer("toolu_1", "It needs approval.", True)]
    )
    if then:
        lines += [
            assistant(call("toolu_2", "Bash", command="ls"), message="msg_2"),
            answer("toolu_2"),
        ]
    listed = [denied("toolu_1", "Bash", command="rm -rf build")] if "list" in by else []
    return report(*lines, result("So be it.", num_turns=3, permission_denials=listed))


WAYS = [
    way for size in (1, 2, 3) for way in itertools.combinations(("event", "result", "list"), size)
]


@pytest.mark.parametrize("by", WAYS, ids="+".join)
def test_v8_a_denial_is_counted_once_however_it_is_reported(by: tuple[str, ...]) -> None:
    found = refused(by=by)
    assert [(one.tool, one.id, one.input, one.allow_rule) for one in found.denials] == [
        ("Bash", "toolu_1", {"command": "rm -rf build"}, "Bash(rm -rf build)")
    ]
    assert (found.verdict, found.ok, found.hint) == (
        "permission",
        False,
        "to allow it: --allowedTools 'Bash(rm -rf build)'",
    )
    assert [note.partition(":")[0] for note in found.warnings] == ["permission"]
    assert [tool.denied for tool in found.tools] == [True]


@pytest.mark.parametrize("by", WAYS, ids="+".join)
def test_v8_a_refusal_that_stopped_nothing(by: tuple[str, ...]) -> None:
    found = refused(by=by, then=True)
    assert (found.verdict, found.ok, len(found.denials)) == ("success", True, 1)


def test_v8_a_success_before_the_refusal_does_not_count() -> None:
    first = [assistant(call("toolu_0", "Bash", command="ls")), answer("toolu_0")]
    second = [
        assistant(call("toolu_1", "Bash", command="rm x"), message="msg_2"),
        refusal("toolu_1"),
    ]
    assert report(init(), *first, *second, result("No.", num_turns=3)).verdict == "permission"


def test_v8_a_later_success_of_another_tool_does_not_count() -> None:
    first = [assistant(call("toolu_1", "Bash", command="rm x")), refusal("toolu_1")]
    second = [assistant(call("toolu_2", "Read", file_path="a"), message="msg_2"), answer("toolu_2")]
    assert report(init(), *first, *second, result("No.", num_turns=3)).verdict == "permission"


def test_v8_a_later_failure_of_the_tool_does_not_count() -> None:
    first = [assistant(call("toolu_1", "Bash", command="rm x")), refusal("toolu_1")]
    second = [
        assistant(call("toolu_2", "Bash", command="ls"), message="msg_2"),
        answer("toolu_2", "Exit code 2", True),
    ]
    assert report(init(), *first, *second, result("No.", num_turns=3)).verdict == "permission"


def test_v8_a_tool_that_a_deny_rule_took_away() -> None:
    words = (
        "<tool_use_error>Error: No such tool available: Bash. "
        "Bash is disabled for this session</tool_use_error>"
    )
    lines = [
        init(),
        assistant(call("toolu_1", "Bash", command="ls")),
        answer("toolu_1", words, True),
        result("No Bash."),
    ]
    found = report(*lines)
    assert (found.verdict, found.denials) == (
        "permission",
        [DeniedCall("Bash", "toolu_1", {"command": "ls"}, words, None)],
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("Bash operation blocked by hook:\n- [./no.sh]: not here\n", id="1.0.128"),
        pytest.param("PreToolUse:Bash hook error: [./no.sh]: not here\n", id="2.0.76"),
    ],
)
def test_v8_a_hook_that_denied_the_call(words: str) -> None:
    asked = assistant(call("toolu_1", "Bash", command="ls"))
    found = report(init(), asked, answer("toolu_1", words, True), result("Done."))
    assert (found.verdict, found.denials) == (
        "permission",
        [DeniedCall("Bash", "toolu_1", {"command": "ls"}, words, None)],
    )


def test_v8_a_tool_that_simply_failed_is_no_refusal() -> None:
    lines = [
        init(),
        assistant(call("toolu_1", "Bash", command="false")),
        answer("toolu_1", "Exit code 1", True),
        result("Hm."),
    ]
    found = report(*lines)
    assert (found.verdict, found.denials) == ("success", [])


@pytest.mark.parametrize(
    ("tool", "given", "rule"),
    [
        ("Bash", {"command": "npm test -- --ci"}, "Bash(npm test -- --ci)"),
        ("Write", {"file_path": f"{CWD}/src/a.py", "content": "x"}, "Edit(src/a.py)"),
        ("Edit", {"file_path": "src/a.py"}, "Edit(src/a.py)"),
        ("NotebookEdit", {"notebook_path": f"{CWD}/n.ipynb"}, "Edit(n.ipynb)"),
        ("Write", {"file_path": "/etc/hosts"}, "Edit(//etc/hosts)"),
        ("Write", {"file_path": f"{CWD}2/a"}, f"Edit(/{CWD}2/a)"),
        (
            "WebFetch",
            {"url": "https://docs.example.org:8443/a?b=c", "prompt": "x"},
            "WebFetch(domain:docs.example.org)",
        ),
        ("WebFetch", {"url": "not a url"}, "WebFetch"),
        ("WebSearch", {"query": "x"}, "WebSearch"),
        ("mcp__github__create_issue", {"title": "x"}, "mcp__github__create_issue"),
        ("Bash", {}, "Bash"),
        ("Bash", "odd", "Bash"),
        ("Write", {"file_path": 5}, "Write"),
    ],
)
def test_v8_the_rule_that_would_allow_it(tool: str, given: Any, rule: str) -> None:
    entry = {"tool_name": tool, "tool_use_id": "toolu_1", "tool_input": given}
    assert [
        one.allow_rule for one in report(init(), result(permission_denials=[entry])).denials
    ] == [rule]


# -- V9, V10, and raising by choice --------------------------------------------------------------


def test_v9_a_run_without_a_result_is_complete_from_its_messages() -> None:
    lines = worked()[:-1]
    found, whole = report(*lines), report(*worked())
    assert (found.verdict, found.ok, found.complete) == ("no_result", False, False)
    assert (found.text, found.files, found.tools, found.requests) == (
        whole.text,
        whole.files,
        whole.tools,
        5,
    )
    assert (found.tokens.input, found.tokens.cache_write, found.tokens.cache_read) == (
        19,
        5015,
        100000,
    )
    assert (found.cost.source, found.context.used) == ("computed", whole.context.used)


def test_v9_a_failed_exit_without_a_result_keeps_its_messages(tmp_path: Path) -> None:
    found = recording(tmp_path, *HALF, code=1, stderr=b"out of memory\n")
    assert (found.verdict, found.error, found.text, found.tokens.input) == (
        "subprocess",
        "out of memory",
        "Half way.",
        3,
    )


@pytest.mark.parametrize(
    ("lines", "code", "succeeded", "ok"),
    [
        (hello(), 0, True, True),
        (hello(), None, True, True),
        ([init(), result("Which one?")], 0, True, False),
        ([*HALF, result(None, subtype="error_max_turns")], 0, True, False),
        ([*HALF, failed("API Error: 500")], 1, False, False),
        ([init(), result("")], 0, False, False),
        (HALF, 0, True, False),
        (HALF, None, False, False),
        ([b"Hello there!"], 0, True, False),  # an answer in plain text
        ([b"Hello there!"], 1, False, False),
        ([b""], 0, False, False),
        ([init(), b"a stray word"], 0, False, False),
    ],
)
def test_v10_two_predicates(
    lines: list[Json | bytes], code: int | None, succeeded: bool, ok: bool, tmp_path: Path
) -> None:
    found = recording(tmp_path, *lines, code=code)
    assert (found.succeeded, found.ok) == (succeeded, ok)


def test_v10_a_run_that_exits_with_a_failure_did_not_succeed(tmp_path: Path) -> None:
    assert recording(tmp_path, *hello(), code=1).succeeded is False


def test_s_raise_for_verdict_returns_a_report_that_is_ok() -> None:
    found = report(*hello())
    assert found.raise_for_verdict() is found


def test_s_raise_for_verdict_raises_with_the_report() -> None:
    found = report(*HALF, failed("API Error: 401 no"))
    with pytest.raises(steno.RunFailed, match="auth: API Error: 401 no") as caught:
        found.raise_for_verdict()
    assert caught.value.report is found
    assert isinstance(caught.value, steno.StenoError)


@pytest.mark.parametrize("name", [name for name, (word, _) in CASES.items() if word != "success"])
def test_s_raise_for_verdict_raises_for_every_other_word(name: str, tmp_path: Path) -> None:
    with pytest.raises(steno.RunFailed, match=CASES[name][0]):
        CASES[name][1](tmp_path).raise_for_verdict()


def test_v7_a_marker_of_an_earlier_turn_does_not_interrupt_a_later_one() -> None:
    lines = [
        init(),
        user("[Request interrupted by user]"),
        user("go on"),
        assistant(text("Done.")),
        result(),
    ]
    assert report(*lines).verdict == "success"


def test_v7_a_tool_result_that_quotes_the_marker_interrupts_nothing() -> None:
    quoted = user([outcome("toolu_1", "[Request interrupted by user]")])
    assert report(init(), assistant(call("toolu_1", "Bash")), quoted, result()).verdict == "success"


def test_v7_advice_can_be_switched_off() -> None:
    """V5 and V6 judge unless the caller says otherwise."""
    data = stream(init(), assistant(text("Shall I?")), result("Shall I?"))
    assert (steno.read(data).verdict, steno.read(data, advice=False).verdict) == (
        "interactive",
        "success",
    )


# -- what is said of it --------------------------------------------------------------------------


def test_v1_an_agent_that_had_begun_is_not_said_to_have_not_begun(tmp_path: Path) -> None:
    begun = recording(tmp_path / "begun", *HALF, code=4, stderr=b"fatal: no token\n")
    never = recording(tmp_path / "never", code=4, stderr=b"fatal: no token\n")
    assert (begun.verdict, never.verdict, begun.error) == (
        "subprocess",
        "subprocess",
        "fatal: no token",
    )
    assert (
        begun.hint
        == f"fix the reported error, then continue: claude --resume {SESSION} -p continue"
    )
    assert never.hint == "the agent failed to start: fix the reported error, then run it again"


def test_v9_an_agent_that_printed_to_stderr_only_is_judged_by_its_last_line(tmp_path: Path) -> None:
    found = recording(tmp_path, code=0, stderr=b"a warning\nsomething broke badly\n")
    assert (found.verdict, found.error) == (
        "no_result",
        "the stream ended without a result: something broke badly",
    )


def test_r3_a_clock_says_which_one_it_was(tmp_path: Path) -> None:
    """A tape of before says the word alone."""
    new = stopped(tmp_path, "stalled: no output for 60 s (--silence)", 2, -2)
    assert (new.verdict, new.error) == (
        "stalled",
        "stopped by steno: no output for 60 s (--silence)",
    )


def test_a_run_that_was_ended_while_it_retried_says_why(tmp_path: Path) -> None:
    """A timeout is no rate limit, but the cause of this one is."""
    retry = system("api_retry", attempt=2, max_retries=10, error_status=429, error="rate_limit")
    lines = stream(*HALF, retry)
    why = "timeout: timed out after 60 s (--timeout)"
    found = steno.read(tape(tmp_path / "tape", out(lines), stop(why, 2), ended(-2)))
    assert (found.verdict, found.error) == (
        "timeout",
        "stopped by steno: timed out after 60 s (--timeout), while retrying a request (rate_limit)",
    )
