"""Gemini CLI: special cases of its stream, exit codes and chats, and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS, LaunchOptions
from steno.agents.base import NEWEST_PROGRAM
from steno.event import Stderr, Unknown
from tests.agent_cases import Json, case, dump, lines, read
from tests.support.program import steno as steno_

AT = "2026-11-15T06:42:36.{:03d}Z"
SESSION = "b1e7d9dc-f51e-41c4-b9a8-291d8cedaa32"
INIT: Json = {
    "type": "init",
    "timestamp": AT.format(1),
    "session_id": SESSION,
    "model": "gemini-2.5-flash",
}
PROMPT: Json = {"type": "message", "timestamp": AT.format(2), "role": "user", "content": "do"}
STATS: Json = {
    "total_tokens": 12,
    "input_tokens": 7,
    "output_tokens": 2,
    "cached": 5,
    "input": 2,
    "duration_ms": 9,
    "tool_calls": 0,
}
START = AGENTS["gemini"].launch.build_command


def message(text: str, at: int = 10, **more: Any) -> Json:
    return {
        "type": "message",
        "timestamp": AT.format(at),
        "role": "assistant",
        "content": text,
        "delta": True,
        **more,
    }


def result(status: str = "success", error: Json | None = None, **stats: Any) -> Json:
    models = {"gemini-2.5-flash": {**STATS, **stats}}
    more = {} if error is None else {"error": error}
    return {
        "type": "result",
        "timestamp": AT.format(99),
        "status": status,
        "stats": {**STATS, **stats, "models": models},
        **more,
    }


def test_the_pieces_of_an_answer_are_one_text() -> None:
    report = read([INIT, PROMPT, message("Hel"), message("lo "), message("there."), result()])
    assert (report.text, report.result, report.turns, report.requests) == (
        "Hello there.",
        "Hello there.",
        1,
        1,
    )


def test_what_was_said_before_a_kill_is_kept() -> None:
    report = read([INIT, PROMPT, message("Half an "), message("ans")], code=-9)
    assert (report.verdict, report.text, report.tokens.total, report.complete) == (
        "killed",
        "Half an ans",
        None,
        False,
    )


def test_a_torn_answer_is_still_a_stream() -> None:
    """A pipe lost the end of it: the hint is to continue, not to ask for a JSON stream."""
    parser = steno.RunParser(AGENTS["gemini"])
    parser.feed_lines(dump([INIT, PROMPT, message("long")])[:-9].splitlines(keepends=True))
    report = parser.report()
    assert (report.verdict, report.hint) == (
        "no_result",
        f"figures come from the messages only; to continue: gemini --resume {SESSION} -p continue",
    )
    assert (report.tokens.total, report.requests) == (None, None)


def test_thoughts_that_the_total_shows_are_output() -> None:
    """Where total_tokens exceeds input plus output, the rest is thoughts."""
    report = read([INIT, PROMPT, message("x"), result()])
    assert (
        report.tokens.input,
        report.tokens.cache_read,
        report.tokens.output,
        report.tokens.total,
    ) == (
        2,
        5,
        5,
        12,
    )


def warning(text: str) -> Json:
    return {"type": "error", "timestamp": AT.format(50), "severity": "warning", "message": text}


@pytest.mark.parametrize(
    ("text", "reason", "error"),
    [
        (
            "Loop detected, stopping execution",
            "loop_detected",
            "the agent's loop detection stopped the run: Loop detected, stopping execution",
        ),
        (
            "Agent execution blocked: not today",
            "stop_execution",
            "a hook or policy stopped the run: not today",
        ),
    ],
)
def test_a_stopped_run_that_is_called_a_success(text: str, reason: str, error: str) -> None:
    report = read([INIT, PROMPT, message("I try."), warning(text), result()], code=0)
    assert (report.verdict, report.terminal_reason, report.error, report.text, report.result) == (
        "stopped",
        reason,
        error,
        "I try.",
        None,
    )


def test_a_run_that_continues_after_a_warning_was_not_stopped() -> None:
    """After the answer, a hook may ask the model to try again."""
    blocked = warning("Agent execution blocked: run the tests first")
    report = read([INIT, PROMPT, message("Done."), blocked, message("Now."), result()], code=0)
    assert (report.verdict, report.result) == ("success", "Now.")


@pytest.mark.parametrize("name", ["hook_stop", "hook_stop_json"])
def test_a_hook_that_stops_the_run(name: str) -> None:
    """In the json format only stderr says so; it may come before the result or after it."""
    report = steno.read(case("gemini", name))
    assert (report.verdict, report.terminal_reason, report.text, report.tokens.total) == (
        "stopped",
        "stop_execution",
        "Go.",
        8053,
    )
    stderr = (case("gemini", name) / "stderr").read_text()
    parser = steno.RunParser(AGENTS["gemini"])
    parser.add_events([Stderr(0, None, None, None, line) for line in stderr.splitlines()])
    parser.feed_lines((case("gemini", name) / "stdout").read_bytes().splitlines(keepends=True))
    assert parser.report().verdict == "stopped"


def test_a_quota_error_that_only_stderr_names() -> None:
    """0.45 reports ten failed attempts as an unknown error, with exit code 1."""
    report = steno.read(case("gemini", "api_429_full", "0.45.2"))
    assert (report.verdict, report.error, report.exit_code, len(report.retries)) == (
        "rate_limit",
        "[API Error: Rate limit reached for requests.]",
        1,
        9,
    )


EXIT_CODE_VERDICTS = {
    144: "invalid_request",
    145: "auth",
    147: "auth",
    148: "invalid_request",
    173: "rate_limit",
    244: "api",
    247: "api",
    41: "auth",
    42: "subprocess",
    52: "subprocess",
    53: "max_turns",
    55: "subprocess",
    1: "subprocess",
    130: "interrupted",
}


@pytest.mark.parametrize(("code", "verdict"), EXIT_CODE_VERDICTS.items())
def test_an_exit_code_is_the_http_status_modulo_256_or_its_own(code: int, verdict: str) -> None:
    assert read([INIT, PROMPT], code=code, agent="gemini").verdict == verdict


def test_the_exit_code_decides_where_the_text_does_not() -> None:
    """A quota error has no number in its text."""
    error = {"type": "unknown", "message": "[API Error: please wait]"}
    assert read([INIT, PROMPT, result("error", error)], code=173).verdict == "rate_limit"


def test_a_wrong_key_comes_as_a_400() -> None:
    report = steno.read((case("gemini", "api_400_key") / "stdout").read_bytes())
    assert (report.verdict, report.ok) == ("auth", False)


def test_an_error_before_a_success_is_no_success() -> None:
    stopped = {
        "type": "error",
        "timestamp": AT.format(50),
        "severity": "error",
        "message": "Maximum session turns exceeded",
    }
    report = read([INIT, PROMPT, message("x"), stopped, result()], code=0)
    assert (report.verdict, report.ok) == ("max_turns", False)
    blocked = {**stopped, "message": "The response was blocked for safety"}
    assert not read([INIT, PROMPT, message("x"), blocked, result()], code=0).ok
    assert read([INIT, PROMPT, message("x"), blocked, message("I continue"), result()], code=0).ok


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("The model response was blocked due to safety settings.", "refused"),
        ("The model response was blocked due to other policy settings.", "refused"),
        ("The model response was blocked due to recitation.", "refused"),
        (
            "Model stream ended due to safety settings (SAFETY) with empty response text.",
            "refused",
        ),
        (
            "Model stream ended due to token limit exhaustion (MAX_TOKENS) "
            "with empty response text.",
            "no_result",
        ),
    ],
)
def test_a_blocked_or_cut_answer_is_not_an_error_of_the_service(reason: str, verdict: str) -> None:
    """0.61 names the reason only if the answer has no text."""
    error = {
        "type": "error",
        "timestamp": AT.format(50),
        "severity": "error",
        "message": reason,
    }
    assert read([INIT, PROMPT, error, result("error")], code=1).verdict == verdict


def test_a_warning_is_no_failure() -> None:
    warned = {
        "type": "error",
        "timestamp": AT.format(50),
        "severity": "warning",
        "message": "a setting is unknown",
    }
    assert read([INIT, PROMPT, message("x"), warned, result()], code=0).ok


def test_a_command_that_would_have_to_be_confirmed_is_refused() -> None:
    """An allowed shell does not allow redirection to a file; the error is an exception."""
    reason = (
        'Tool execution for "Shell" requires user confirmation, '
        "which is not supported in non-interactive mode."
    )
    call: Json = {
        "type": "tool_use",
        "timestamp": AT.format(20),
        "tool_name": "run_shell_command",
        "tool_id": "one",
    }
    error = {"type": "unhandled_exception", "message": reason}
    answer = {
        "type": "tool_result",
        "timestamp": AT.format(21),
        "tool_id": "one",
        "status": "error",
        "output": reason,
        "error": error,
    }
    call["parameters"] = {"command": "echo hi > made.txt"}
    report = read(
        [INIT, PROMPT, call, answer, message("ok", 30), result()],
        code=0,
    )
    assert (report.verdict, [denial.reason for denial in report.denials]) == (
        "permission",
        [reason],
    )


def test_a_guarded_tool_that_is_not_there_was_refused() -> None:
    """A tool without permission is unknown to the agent, like one with a wrong name."""
    report = steno.read(case("gemini", "permission_denied"))
    assert [(denial.tool, denial.allow_rule) for denial in report.denials] == [
        ("write_file", "write_file"),
        ("run_shell_command", "run_shell_command(rm -rf build)"),
    ]
    assert (
        report.hint == "to allow it: --allowed-tools write_file 'run_shell_command(rm -rf build)'"
    )
    assert steno.read(case("gemini", "tools")).denials == []


def test_retries_stand_on_stderr() -> None:
    report = steno.read(case("gemini", "api_429_full"))
    assert [(retry.attempt, retry.status, retry.error) for retry in report.retries] == [
        (n, 429, "rate_limit") for n in range(1, 10)
    ]


def test_the_chat_file_adds_requests_thoughts_and_the_folder() -> None:
    report = steno.read(case("gemini", "tools_chat"))
    assert (report.cwd, report.context.used, report.context.source) == (
        "/tmp/demo/project",
        7004,
        "measured",
    )
    assert (report.tokens.reasoning, report.tokens.output) == (28, 198)
    assert [(file.path, file.change) for file in report.files] == [
        ("new.txt", "created"),
        ("src/app.py", "modified"),
    ]


def test_a_chat_of_another_run_says_nothing() -> None:
    """The requests of another run of the same session are not used."""
    data = (
        (case("gemini", "tools_chat") / "stdout")
        .read_bytes()
        .replace(b"2026-11-15T12:3", b"2026-11-14T12:3")
    )
    chat = next((case("gemini", "tools_chat") / "sessions").glob("*33-*")).read_bytes()
    reading = steno.RunParser()
    reading.feed_lines(data.splitlines(keepends=True))
    reading.add_events(reading.enrich(chat.splitlines(keepends=True)))
    report = reading.report()
    assert (report.tokens.output, report.context.source) == (170, "upper_bound")


def test_m2_a_run_and_its_chat_are_counted_once(tmp_path: Path) -> None:
    """The same requests are in the run and in the chat that is imported after it."""
    folder = case("gemini", "tools_chat")
    (chat,) = (folder / "sessions").glob("*33-*")
    base = tmp_path / "ledger.db"
    assert steno_(tmp_path, "ledger", "import", "--ledger", base, folder).code == 0
    once = _spent(tmp_path, base)
    assert steno_(tmp_path, "ledger", "import", "--ledger", base, chat).code == 0
    twice = _spent(tmp_path, base)
    # The chat contains a second run of the session, with one more request.
    assert (once, twice) == ((4, 28_208), (5, 28_208 + 7_049))


def _spent(data: Path, base: Path) -> tuple[int, int]:
    total = json.loads(
        steno_(data, "usage", "agent", "--json", "--no-import", "--ledger", base).out
    )["total"]
    return total["requests"], total["tokens"]["total"]


def test_the_json_format_counts_calls_and_requests() -> None:
    report = steno.read(case("gemini", "tools_json"))
    assert {name: (count.calls, count.errors) for name, count in report.tool_counts.items()} == {
        "run_shell_command": (2, 0),
        "read_file": (2, 1),
        "write_file": (1, 0),
        "replace": (1, 0),
        "no_such_tool": (1, 1),
    }
    assert (report.requests, report.model) == (4, "gemini-2.5-flash")


def chat_message(id_: str, at: int, **counters: int) -> Json:
    tokens = {"input": 7, "output": 2, "cached": 5, "thoughts": 1, "tool": 0, **counters}
    about = {"type": "gemini", "timestamp": AT.format(at), "model": "gemini-2.5-flash"}
    return {"id": id_, **about, "content": id_, "tokens": tokens}


@pytest.mark.parametrize(
    ("cached", "context", "files"),
    [
        (10, (9, "measured"), [("/p/new", "created")]),
        (11, (16, "upper_bound"), []),  # not the sum of the last two requests
    ],
)
def test_the_json_format_gets_its_requests_from_the_chat(
    cached: int, context: tuple[int, str], files: list[tuple[str, str]]
) -> None:
    """The document has sums only; the chat may have earlier runs of the session."""
    tokens = {"prompt": 16, "candidates": 4, "cached": cached, "thoughts": 2, "tool": 0}
    stats = {"api": {"totalRequests": 3, "totalErrors": 1}, "tokens": tokens}
    document = {
        "session_id": SESSION,
        "response": "Done.",
        "stats": {"models": {"gemini-2.5-flash": stats}},
    }
    write = {"name": "write_file", "status": "success", "args": {"file_path": "/p/new"}}
    done = {**write, "id": "c1", "result": "Successfully created and wrote to new file"}
    old = {**write, "id": "c0", "args": {"file_path": "/p/old"}}
    chat = [
        {"sessionId": SESSION, "projectHash": "x", "startTime": AT.format(1)},
        {**chat_message("m1", 10), "toolCalls": [old]},
        {**chat_message("m2", 20), "toolCalls": [done]},
        chat_message("m3", 30, input=9),
    ]
    parser = steno.RunParser(AGENTS["gemini"])
    parser.feed_lines([json.dumps(document).encode()])
    parser.add_events(parser.enrich(dump(chat).splitlines(keepends=True)))
    report = parser.report()
    assert (report.requests, report.tokens.total) == (2, 22)
    assert (report.context.used, report.context.source) == context
    assert [(file.absolute, file.change) for file in report.files] == files


def test_a_document_with_an_error_is_a_failure() -> None:
    report = steno.read(
        b'{\n "session_id": "x",\n "error": {"type": "FatalTurnLimitedError", '
        b'"message": "Reached max", "code": 53}\n}\n'
    )
    assert (report.agent, report.verdict) == ("gemini", "max_turns")


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        (LaunchOptions(prompt="hi"), []),
        (LaunchOptions(prompt="-x", model="gemini-2.5-pro"), ["-m", "gemini-2.5-pro"]),
        (
            LaunchOptions(resume="b1e7d9dc-f51e-41c4-b9a8-291d8cedaa32"),
            ["--resume", "b1e7d9dc-f51e-41c4-b9a8-291d8cedaa32"],
        ),
        (LaunchOptions(continue_=True), ["--resume", "latest"]),
        (LaunchOptions(permission_mode="yolo"), ["--approval-mode", "yolo"]),
        (LaunchOptions(permission_mode="bypassPermissions"), ["--approval-mode", "yolo"]),
        (LaunchOptions(permission_mode="acceptEdits"), ["--approval-mode", "auto_edit"]),
        (
            LaunchOptions(allow=("write_file", "run_shell_command(ls)")),
            ["--allowed-tools=write_file", "--allowed-tools=run_shell_command(ls)"],
        ),
        (
            LaunchOptions(add_dirs=("/a", "/b"), extra=("--skip-trust",)),
            ["--include-directories=/a", "--include-directories=/b", "--skip-trust"],
        ),
    ],
)
def test_the_command_line(options: LaunchOptions, argv: list[str]) -> None:
    launch = START(options, "gemini", NEWEST_PROGRAM)
    assert (list(launch.argv), launch.stdin, launch.stdout) == (
        ["gemini", "-o", "stream-json", *argv],
        options.prompt.encode(),
        "file",
    )


def test_stdin_takes_any_prompt() -> None:
    assert (
        START(LaunchOptions(prompt="-p\n\udcff é"), "gemini", NEWEST_PROGRAM).stdin
        == b"-p\n\xff \xc3\xa9"
    )


def test_an_unknown_line_keeps_its_bytes() -> None:
    line = dump([{"type": "new_thing", "timestamp": AT.format(3), "x": 1}])
    unknown = [event for event in steno.events(dump([INIT]) + line) if isinstance(event, Unknown)]
    assert [(event.kind, event.raw.rstrip()) for event in unknown] == [("new_thing", line.rstrip())]


def test_a_run_that_was_cut_before_its_first_word_has_no_turns() -> None:
    report = steno.read(dump(lines(case("gemini", "api_500"))))
    assert (report.verdict, report.requests, report.tokens.total) == ("no_result", 0, None)


# -- tiered prices (gemini-2.5-pro: another price above 200,000 tokens of input) ---------------

# Dollars for a million tokens of input and of output, below and above the limit.
LOW = (1.25, 10.0)
HIGH = (2.5, 15.0)
TIERED = "gemini-2.5-pro"


def _sized(*inputs: int) -> list[Json]:
    """A run with requests of these sizes and 100 tokens of output each; the stream has the sum."""
    calls: list[Json] = []
    for number in range(len(inputs) - 1):
        call = {"tool_name": "glob", "tool_id": f"c{number}", "parameters": {}}
        calls += [{"type": "tool_use", "timestamp": AT.format(10 + number), **call}]
        calls += [
            {
                "type": "tool_result",
                "timestamp": AT.format(10 + number),
                "tool_id": f"c{number}",
                "status": "success",
            }
        ]
    total = sum(inputs)
    output = 100 * len(inputs)
    share = {
        "total_tokens": total + output,
        "input_tokens": total,
        "output_tokens": output,
        "cached": 0,
        "input": total,
    }
    end = {
        "type": "result",
        "timestamp": AT.format(99),
        "status": "success",
        "stats": {**share, "models": {TIERED: share}},
    }
    return [{**INIT, "model": TIERED}, PROMPT, *calls, message("Done.", 90), end]


def _chat(*inputs: int) -> bytes:
    """The chat of the same run."""
    head = {"sessionId": SESSION, "projectHash": "0", "startTime": AT.format(1), "kind": "main"}
    tokens = [
        {"input": size, "output": 100, "cached": 0, "thoughts": 0, "tool": 0, "total": size + 100}
        for size in inputs
    ]
    messages = [
        {
            "id": f"m{number}",
            "timestamp": AT.format(20 + number),
            "type": "gemini",
            "content": "",
            "tokens": usage,
            "model": TIERED,
        }
        for number, usage in enumerate(tokens)
    ]
    return dump([head, *messages])


def _dollars(rate: tuple[float, float], *inputs: int) -> float:
    return sum((size * rate[0] + 100 * rate[1]) / 1e6 for size in inputs)


def test_a_sum_above_the_size_is_not_a_request_above_it() -> None:
    """Three requests of 100,000 each: only their sum is above 200,000."""
    report = steno.read(dump(_sized(100_000, 100_000, 100_000)))
    assert (report.requests, report.cost.source) == (3, "computed")
    assert report.cost.usd == pytest.approx(_dollars(LOW, 100_000, 100_000, 100_000), abs=1e-8)
    assert report.warnings == [
        "tiered price, request sizes unknown: computed as if all requests were equal"
    ]


def test_one_request_above_the_size_has_its_price() -> None:
    report = steno.read(dump(_sized(300_000)))
    assert report.cost.usd == pytest.approx(_dollars(HIGH, 300_000), abs=1e-8)
    assert report.warnings == []


def test_the_chat_file_shows_which_request_was_above_the_tier(tmp_path: Path) -> None:
    """One request above the limit, two below: each has its own price."""
    sizes = (250_000, 60_000, 70_000)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "stdout").write_bytes(dump(_sized(*sizes)))
    (tmp_path / "sessions" / f"session-2026-11-15T06-42-{SESSION[:8]}.jsonl").write_bytes(
        _chat(*sizes)
    )
    report = steno.read(tmp_path)
    assert (report.requests, report.warnings) == (3, [])
    assert report.cost.usd == pytest.approx(
        _dollars(HIGH, 250_000) + _dollars(LOW, 60_000, 70_000), abs=1e-8
    )
