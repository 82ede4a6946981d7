"""OpenCode: the end of a run, the cost, calls and files, and the command line."""

from typing import Any

import pytest

import steno
from steno.agents import AGENTS, LaunchOptions
from steno.agents.base import NEWEST_PROGRAM
from tests.agent_cases import Json, case, lines, read

SESSION = "ses_e22106888ffe7RZV4VNNAyG1v4"
START = AGENTS["opencode"].launch.build_command


def line(kind: str, at: int, **part: Any) -> Json:
    return {
        "type": kind,
        "timestamp": 1794724834000 + at,
        "sessionID": SESSION,
        "part": {"messageID": f"msg_{at // 100}", **part},
    }


def finish(at: int, reason: str, cost: float = 0.5, **tokens: Any) -> Json:
    counters = {
        "total": 33,
        "input": 1,
        "output": 2,
        "reasoning": 10,
        "cache": {"write": 4, "read": 16},
        **tokens,
    }
    return line("step_finish", at, id=f"prt_{at}", reason=reason, tokens=counters, cost=cost)


def tool(at: int, name: str, call: str, **state: Any) -> Json:
    span = {"start": 1794724834000 + at, "end": 1794724834020 + at}
    return line(
        "tool_use",
        at,
        tool=name,
        callID=call,
        state={"status": "completed", "input": {}, "time": span, **state},
    )


def test_output_includes_reasoning() -> None:
    report = read([line("step_start", 1), line("text", 2, text="Hi"), finish(3, "stop")], code=0)
    assert (
        report.tokens.input,
        report.tokens.cache_write,
        report.tokens.cache_read,
        report.tokens.output,
    ) == (1, 4, 16, 12)
    assert (report.tokens.reasoning, report.tokens.total, report.cost.usd, report.cost.source) == (
        10,
        33,
        0.5,
        "reported",
    )


def test_a_price_of_nothing_is_not_known() -> None:
    assert read([line("step_start", 1), finish(3, "stop", cost=0)], code=0).cost.usd is None
    steps = [
        line("step_start", 1),
        finish(3, "tool-calls"),
        line("step_start", 101),
        finish(103, "stop", cost=0),
    ]
    assert read(steps, code=0).cost.usd is None


def test_costs_of_all_steps_add_up() -> None:
    steps = [
        line("step_start", 1),
        finish(3, "tool-calls", 0.1),
        line("step_start", 101),
        finish(103, "stop", 0.2),
    ]
    report = read(steps, code=0)
    assert report.cost.usd == pytest.approx(0.3)
    assert (report.turns, report.requests) == (2, 2)


@pytest.mark.parametrize("reason", ["tool-calls", "error", "other"])
def test_only_stop_is_an_end(reason: str) -> None:
    """A run that ends with exit code 0 and another reason did not finish."""
    report = read(
        [line("step_start", 1), line("text", 2, text="I will"), finish(3, reason)], code=0
    )
    assert (report.verdict, report.ok, report.complete, report.stop_reason) == (
        "no_result",
        False,
        False,
        reason,
    )


def test_a_step_that_never_finished_is_no_end() -> None:
    report = read([line("step_start", 1), line("text", 2, text="I will")], code=0)
    assert (report.verdict, report.ok, report.tokens.total) == ("no_result", False, None)


def error(name: str, message: str = "no", **data: Any) -> Json:
    about = {"name": name, "data": {"message": message, **data}}
    return {"type": "error", "timestamp": 1794724834999, "sessionID": SESSION, "error": about}


def test_an_answer_that_was_cut_off_at_the_output_limit_is_no_success() -> None:
    steps = [line("step_start", 1), line("text", 2, text="I will"), finish(3, "length")]
    report = read(steps, code=0)
    assert (report.verdict, report.error, report.stop_reason, report.text) == (
        "no_result",
        "the model's answer was cut off at its output limit",
        "max_tokens",
        "I will",
    )
    assert (report.tokens.total, report.cost.usd, report.cost.source, report.warnings) == (
        33,
        0.5,
        "reported",
        [],
    )


@pytest.mark.parametrize("end", [[], [error("ContentFilterError", "blocked")]])
def test_a_content_filter_is_a_refusal(end: list[Json]) -> None:
    """1.18 prints an error after the step, and exits with 1."""
    report = read([line("step_start", 1), finish(3, "content-filter"), *end], code=len(end))
    assert (report.verdict, report.cost.usd) == ("refused", 0.5)


NOTHING = {"total": 0, "input": 0, "output": 0, "reasoning": 0, "cache": {"write": 0, "read": 0}}
UNFINISHED = [line("step_start", 101), line("text", 102, text="I wi")]
CUT = [*UNFINISHED, finish(103, "unknown", 0, **NOTHING)]
NO_USAGE = "tokens and cost are a lower bound: no usage for 1 of 2 requests"
NO_RESULT = "tokens, cost and requests are a lower bound: the run ended without a result"


@pytest.mark.parametrize(
    ("end", "verdict", "total", "cost", "requests", "warnings"),
    [
        # A step that was cut off reports 0 everywhere; OpenCode asks again.
        (CUT, "no_result", 33, 0.5, 2, [NO_USAGE]),
        (
            [*CUT, line("step_start", 201), line("text", 202, text="Hi"), finish(203, "stop")],
            "success",
            66,
            1.0,
            3,
            [NO_USAGE.replace("of 2", "of 3")],
        ),
        (UNFINISHED, "no_result", 33, 0.5, 2, [NO_USAGE]),
        ([], "no_result", 33, 0.5, 1, [NO_RESULT]),
        ([error("APIError", "bad", statusCode=400)], "invalid_request", 33, 0.5, 1, []),
        (
            [*UNFINISHED, error("APIError", "bad", statusCode=400)],
            "invalid_request",
            33,
            0.5,
            2,
            [NO_USAGE],
        ),
    ],
)
def test_finished_steps_count_without_an_end(
    end: list[Json],
    verdict: str,
    total: int,
    cost: float,
    requests: int,
    warnings: list[str],
) -> None:
    report = read([line("step_start", 1), finish(3, "tool-calls"), *end])
    assert (report.verdict, report.tokens.total, report.requests) == (verdict, total, requests)
    assert (report.cost.usd, report.cost.source, report.cost.session_usd) == (
        cost,
        "reported",
        None,
    )
    assert report.warnings == warnings


@pytest.mark.parametrize("end", [[], [error("APIError", "bad", statusCode=400)]])
@pytest.mark.parametrize("start", [CUT, UNFINISHED, []])
def test_nothing_is_known_without_a_finished_step(start: list[Json], end: list[Json]) -> None:
    """No cost of $0, and no context of 0 tokens."""
    report = read([*start, *end], agent="opencode")
    assert (report.tokens.total, report.cost.usd, report.cost.source) == (None, None, "unknown")
    assert (report.context.used, report.context.source) == (None, "unknown")


def test_stop_with_a_bad_exit_code_is_no_success() -> None:
    report = read(
        [line("step_start", 1), line("text", 2, text="Done"), finish(3, "stop")],
        code=1,
        errors="boom",
    )
    assert (report.verdict, report.ok) == ("subprocess", False)
    assert report.error == "the agent reported success but exited with code 1: boom"


def test_an_error_after_a_stop_is_the_end() -> None:
    error_info = {"name": "APIError", "data": {"message": "slow down", "statusCode": 429}}
    error = {"type": "error", "timestamp": 1794724834999, "sessionID": SESSION, "error": error_info}
    report = read([line("step_start", 1), finish(3, "stop"), error], code=1)
    assert (report.verdict, report.error) == ("rate_limit", "slow down")


def test_errors_by_their_names() -> None:
    def verdict(name: str) -> str:
        error = {
            "type": "error",
            "timestamp": 1,
            "sessionID": SESSION,
            "error": {"name": name, "data": {"message": "no"}},
        }
        return read([error], code=1).verdict

    assert verdict("ProviderAuthError") == "auth"
    assert verdict("ContextOverflowError") == "context_full"
    assert verdict("MessageAbortedError") == "interrupted"
    assert verdict("UnknownError") == "api"


def test_a_call_and_its_answer_have_their_own_times() -> None:
    report = read(
        [
            line("step_start", 1),
            tool(5, "bash", "c1", metadata={"exit": 3}),
            finish(90, "tool-calls"),
        ]
    )
    assert [(call.id, call.kind, call.ok, call.duration_ms) for call in report.tools] == [
        ("c1", "shell", False, 20)
    ]


def test_an_id_that_is_used_again_is_another_call() -> None:
    """Local models number their calls from 0 in every answer."""
    report = read(
        [
            line("step_start", 1),
            tool(5, "read", "call_0"),
            tool(6, "glob", "call_0"),
            finish(90, "stop"),
        ]
    )
    assert [(call.id, call.name, call.ok) for call in report.tools] == [
        ("call_0", "read", True),
        ("call_0#2", "glob", True),
    ]


def test_a_refusal_ends_the_run_and_is_its_verdict() -> None:
    report = steno.read(case("opencode", "permission_denied"))
    assert (report.verdict, report.exit_code, report.complete) == ("permission", 0, True)
    assert [denial.tool for denial in report.denials] == ["write", "bash"]


def test_a_refusal_of_version_1_2_has_the_name_of_the_error() -> None:
    report = steno.read(case("opencode", "permission_rejected", "1.2.27"))
    assert (report.verdict, report.exit_code, report.complete) == ("permission", 0, True)
    assert [(denial.tool, denial.allow_rule) for denial in report.denials] == [
        ("bash", '{"bash":{"ls":"allow"}}')
    ]


@pytest.mark.parametrize(
    "error", ['PermissionDeniedError({"ruleset":[]})', "PermissionCorrectedError({})"]
)
def test_other_refusals_of_version_1_2(error: str) -> None:
    call = tool(5, "bash", "c1", status="error", error=error, input={"command": "ls"})
    report = read([line("step_start", 1), call, finish(9, "tool-calls")], code=0)
    assert (report.verdict, report.complete) == ("permission", True)


def test_files_of_a_patch() -> None:
    files = [
        {"filePath": "/p/a", "type": "add"},
        {"filePath": "/p/b", "type": "update"},
        {"filePath": "/p/c", "type": "delete"},
    ]
    report = read(
        [
            line("step_start", 1),
            tool(5, "apply_patch", "c1", metadata={"files": files}),
            finish(90, "stop"),
        ]
    )
    assert [(file.absolute, file.change) for file in report.files] == [
        ("/p/a", "created"),
        ("/p/b", "modified"),
        ("/p/c", "deleted"),
    ]


def test_a_failed_write_changes_nothing() -> None:
    lines_ = [
        line("step_start", 1),
        tool(5, "write", "c1", status="error", error="no", input={"filePath": "/p/a"}),
        finish(9, "stop"),
    ]
    assert read(lines_).files == []


def test_a_session_that_is_gone() -> None:
    report = steno.read(case("opencode", "resume_wrong_id"))
    assert (report.verdict, "Session not found" in (report.error or "")) == ("subprocess", True)


NO_SESSION_HINT = "session not found: run without --resume, or in the folder where it was created"


def test_a_session_that_is_gone_with_exit_code_0() -> None:
    """Version 1.2: only stderr has it, in the middle of a stack trace."""
    report = steno.read(case("opencode", "resume_unknown_session", "1.2.27"))
    assert (report.agent, report.verdict, report.error, report.hint) == (
        "opencode",
        "subprocess",
        "Session not found: ses_nosuchsession123",
        NO_SESSION_HINT,
    )


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("\x1b[91m\x1b[1mError: \x1b[0mSession not found", "subprocess"),
        ("the tests say: Session not found: ses_1", "success"),
        ("Error: Session not found in the cookie", "success"),
    ],
)
def test_only_the_agents_own_message_means_that_a_session_is_gone(text: str, verdict: str) -> None:
    started = [] if verdict == "subprocess" else [line("step_start", 1), finish(9, "stop")]
    texts = [] if verdict == "subprocess" else [line("text", 2, text="Hi")]
    report = read([*started[:1], *texts, *started[1:]], code=0, errors=text, agent="opencode")
    assert report.verdict == verdict


def test_a_subagent_is_listed_with_its_call() -> None:
    state = {
        "input": {"description": "look", "subagent_type": "explore"},
        "metadata": {"sessionId": "ses_child0000000"},
    }
    report = read([line("step_start", 1), tool(5, "task", "c1", **state), finish(90, "stop")])
    assert [
        (entry.id, entry.type, entry.description, entry.status) for entry in report.subagents
    ] == [("c1", "explore", "look", "completed")]


def test_a_subagent_that_never_started_is_none() -> None:
    call = tool(5, "task", "c1", status="error", error="Unknown agent type: reviewer")
    report = read([line("step_start", 1), call, finish(90, "stop")])
    assert (report.subagents, report.warnings) == ([], [])


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        (LaunchOptions(prompt="hi"), []),
        (
            LaunchOptions(model="anthropic/claude-opus-5-5"),
            ["--model", "anthropic/claude-opus-5-5"],
        ),
        (LaunchOptions(resume=SESSION, fork=True), ["--session", SESSION, "--fork"]),
        (LaunchOptions(continue_=True), ["--continue"]),
        (LaunchOptions(permission_mode="yolo"), ["--auto"]),
        (LaunchOptions(permission_mode="bypassPermissions"), ["--auto"]),
        (
            LaunchOptions(permission_mode="plan", extra=("--thinking",)),
            ["--agent", "plan", "--thinking"],
        ),
    ],
)
def test_the_command_line(options: LaunchOptions, argv: list[str]) -> None:
    launch = START(options, "opencode", NEWEST_PROGRAM)
    assert (list(launch.argv), launch.stdin) == (
        ["opencode", "run", "--format", "json", *argv],
        options.prompt.encode(),
    )


def test_the_hint_to_continue() -> None:
    report = steno.read(case("opencode", "sigint"))
    assert report.hint == (
        f"the results are partial; to continue: opencode run --session {report.session_id} continue"
    )


def test_every_line_of_a_recording_is_known() -> None:
    assert all(
        steno.read(case("opencode", name)).lines.unknown == 0
        for name in ("tools", "success", "resume", "api_400")
    )
    assert {entry["type"] for entry in lines(case("opencode", "tools"))} == {
        "step_start",
        "text",
        "tool_use",
        "step_finish",
    }
