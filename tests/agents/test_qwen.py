"""Qwen Code: token sums, failures reported as a success, chats, and the command line."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS, LaunchOptions
from steno.agents.base import NEWEST_PROGRAM
from tests.agent_cases import Json, case, dump, lines, read

SESSION = "a84310b2-a053-465e-8a03-d87dde4e3eae"
INIT: Json = {
    "type": "system",
    "subtype": "init",
    "session_id": SESSION,
    "cwd": "/p",
    "model": "coder",
    "qwen_code_version": "0.15.10",
}
START = AGENTS["qwen"].launch.build_command


def message(id_: str, *blocks: Json, tokens: int = 0) -> Json:
    usage: Json = {"input_tokens": 0, "output_tokens": 0}
    if tokens:
        usage = {
            "input_tokens": 100 + tokens,
            "output_tokens": tokens,
            "cache_read_input_tokens": 100,
            "total_tokens": 100 + 2 * tokens,
        }
    inner = {
        "id": id_,
        "role": "assistant",
        "model": "coder",
        "content": list(blocks),
        "stop_reason": None,
        "usage": usage,
    }
    return {
        "type": "assistant",
        "uuid": id_,
        "session_id": SESSION,
        "parent_tool_use_id": None,
        "message": inner,
    }


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def use(call: str, name: str, **input_: Any) -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": input_}


def answer(call: str, content: str, failed: bool = False) -> Json:
    block = {"type": "tool_result", "tool_use_id": call, "is_error": failed, "content": content}
    return {
        "type": "user",
        "session_id": SESSION,
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": [block]},
    }


def result(text: str, tokens: int = 0, turns: int = 1) -> Json:
    usage = {
        "input_tokens": 100 + tokens if tokens else 0,
        "output_tokens": tokens,
        "cache_read_input_tokens": 100 if tokens else 0,
    }
    about = {
        "type": "result",
        "subtype": "success",
        "session_id": SESSION,
        "is_error": False,
        "duration_ms": 5,
    }
    return {**about, "num_turns": turns, "result": text, "usage": usage, "permission_denials": []}


FAILED = "[API Error: 401 Incorrect API key provided]"


def test_a_failure_that_is_called_a_success_is_none() -> None:
    report = steno.read(case("qwen", "api_401"))
    assert (report.verdict, report.ok, report.succeeded, report.exit_code, report.subtype) == (
        "auth",
        False,
        False,
        0,
        "success",
    )
    assert (report.text, report.result, report.error, report.evidence) == ("", None, FAILED, [2, 3])


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("429 slow down", "rate_limit"),
        ("500 oops", "api"),
        ("400 bad", "invalid_request"),
        ("Connection error.", "network"),
    ],
)
def test_a_failure_by_its_message(error: str, verdict: str) -> None:
    message_ = f"[API Error: {error}]"
    assert read([INIT, message("a", text(message_)), result(message_)], code=0).verdict == verdict


def test_a_model_may_say_the_same_words() -> None:
    """A message with usage is the model's own."""
    report = read([INIT, message("a", text(FAILED), tokens=9), result(FAILED, tokens=9)], code=0)
    assert (report.verdict, report.text) == ("success", FAILED)


@pytest.mark.parametrize(
    "reason",
    [
        "Model stream ended with empty response text.",
        "Model stream ended without a finish reason.",
        "Model response contained a malformed tool call.",
    ],
)
def test_an_answer_that_qwen_rejects_has_usage_and_is_no_success(reason: str) -> None:
    """Up to 0.23, after the last of five attempts, with exit code 0."""
    error = f"[API Error: {reason}]"
    values = [INIT, message("a", text(error), tokens=9), result(error, tokens=45)]
    report = read(values, code=0)
    assert (report.verdict, report.error, report.text, report.requests) == ("api", error, "", None)


def test_a_failure_that_was_followed_by_work_is_over() -> None:
    lines_ = [
        INIT,
        message("a", text(FAILED)),
        message("b", text("Done."), tokens=9),
        result("Done.", tokens=9),
    ]
    assert read(lines_, code=0).verdict == "success"


def test_one_answer_in_two_messages_is_one_request() -> None:
    lines_ = [
        INIT,
        message("a", text("Let me.")),
        message("b", use("c", "read_file", file_path="/p/x"), tokens=7),
        answer("c", "x"),
    ]
    report = read(lines_)
    assert (
        report.requests,
        report.tokens.input,
        report.tokens.cache_read,
        report.tokens.output,
        report.text,
    ) == (1, 7, 100, 7, "Let me.")


def test_the_result_counts_helpers_too() -> None:
    report = steno.read(case("qwen", "success"))
    assert (report.requests, report.context.used, report.tokens.total) == (None, 9002, 18130)


def stats(**sources: int) -> Json:
    """The stats of the json format: the tokens of each source, one request each."""
    by_source = {
        name: {"tokens": {"prompt": 100 + count, "candidates": count, "cached": 100}}
        for name, count in sources.items()
    }
    total = sum(sources.values())
    tokens = {"prompt": 100 * len(sources) + total, "candidates": total, "cached": 100}
    api = {"totalRequests": len(sources) + 1, "totalErrors": 1}
    return {"models": {"coder": {"tokens": tokens, "api": api, "bySource": by_source}}}


@pytest.mark.parametrize(
    ("more", "requests", "is_bound"),
    [
        ({}, None, True),
        ({"stats": stats(main=7, extractor=5)}, 2, False),
        ({"stats": stats(main=12, extractor=5)}, None, True),  # with an earlier run
        ({"stats": {"models": {"coder": {"bySource": {"main": {}}}}}}, None, True),
    ],
)
def test_hidden_requests_make_their_number_unknown(
    more: Json, requests: int | None, is_bound: bool
) -> None:
    """The result counts them; only the json format shows how many they are."""
    values = [INIT, message("m1", text("Hi"), tokens=7), {**result("Hi", tokens=12), **more}]
    report = read(values, code=0)
    assert (report.verdict, report.requests, report.context.used) == ("success", requests, 107)
    bounds = [note for note in report.warnings if note.startswith("tokens are an upper bound")]
    assert bool(bounds) is is_bound


def test_a_chat_has_the_requests_of_helpers() -> None:
    """They have a line of telemetry, but no message."""
    (path,) = case("qwen", "resume_first_read_later").rglob("chats/*.jsonl")
    report = steno.read(path)
    helpers = [entry for entry in report.subagents if entry.id.startswith("managed-auto-memory")]
    assert [entry.tokens.total for entry in helpers] == [8052]
    assert (report.requests, report.tokens.total) == (4, 3 * 8052 + 8154)


def test_the_limit_of_turns_has_no_result() -> None:
    report = steno.read(case("qwen", "max_turns"))
    assert (report.verdict, report.exit_code, report.complete) == ("max_turns", 53, False)
    assert (report.hint or "").endswith(
        f"qwen --resume {report.session_id} -p continue --max-session-turns N"
    )


@pytest.mark.parametrize("name", ["max_turns", "max_turns_json"])
def test_the_error_is_the_reason_and_not_all_of_stderr(name: str) -> None:
    """0.24 prints two warnings first; in its json format nothing goes to stdout."""
    report = steno.read(case("qwen", name, "0.24.4"))
    assert (report.agent, report.verdict, report.error) == (
        "qwen",
        "max_turns",
        "Reached max session turns for this session. "
        "Increase the number of turns by specifying maxSessionTurns in settings.json.",
    )


def failed_result(message_: str) -> Json:
    """The result of 0.24 for a failed run."""
    line = {**result(""), "subtype": "error_during_execution", "is_error": True}
    del line["result"]
    return {**line, "error": {"message": message_}}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("[API Error: 401 Incorrect API key provided.]", "auth"),
        ("[API Error: 429 slow down]", "rate_limit"),
        ("[API Error: 400 This model's maximum context length is 128 tokens.]", "context_full"),
        ("Loop detection halted the run (read_file_loop: no progress).", "stopped"),
    ],
)
def test_the_error_of_a_result(error: str, verdict: str) -> None:
    report = read([INIT, message("a", text("I try."), tokens=9), failed_result(error)], code=1)
    assert (report.verdict, report.text, report.result) == (verdict, "I try.", None)
    assert (report.error or "").endswith(error)


def test_a_loop_leaves_the_cancelled_request_out_of_the_totals() -> None:
    """The server answered five requests, the agent counts four."""
    report = steno.read(case("qwen", "loop", "0.24.4"))
    assert (report.verdict, report.terminal_reason, report.requests) == (
        "stopped",
        "loop_detected",
        4,
    )
    assert report.warnings == [
        "tokens, cost and requests are a lower bound: the agent leaves out the requests that "
        "its loop detection cancelled"
    ]


def test_retries_in_the_stream() -> None:
    """The server got one request and four more; each retry was announced twice."""
    report = steno.read(case("qwen", "empty", "0.24.4"))
    assert (len(report.retries), report.lines.unknown, report.text) == (4, 0, "")
    report = steno.read(case("qwen", "api_429_interrupted", "0.24.4"))
    assert [(retry.attempt, retry.error, retry.delay_ms) for retry in report.retries] == [
        (1, "rate_limit", 60_000),
        (2, "rate_limit", 120_000),
    ]


def test_a_fallback_model_is_no_retry() -> None:
    line = {"type": "system", "subtype": "retry", "session_id": SESSION}
    report = read([INIT, {**line, "data": {"reason": "model_fallback", "discardedToolCalls": 0}}])
    assert (report.retries, report.lines.unknown) == ([], 0)


def test_a_failed_request_with_usage_is_no_answer() -> None:
    """Only the line after it shows whether the model said this; before, it is kept as a part."""
    said = [INIT, message("a", text(FAILED), tokens=9)]
    assert read([*said, failed_result(FAILED)], code=1).text == ""
    assert read([*said, result(FAILED, tokens=9)], code=0).text == FAILED
    assert read(said, code=-9).text == FAILED


def test_an_id_that_is_used_again_is_another_call() -> None:
    report = steno.read(case("qwen", "sigint"))
    assert (len(report.tools), report.tool_counts["run_shell_command"].errors) == (294, 294)
    assert len({call.id for call in report.tools}) == 294


def test_files_by_the_text_of_the_result() -> None:
    lines_ = [
        INIT,
        message(
            "a",
            use("c1", "write_file", file_path="/p/new"),
            use("c2", "edit", file_path="/p/old"),
            tokens=7,
        ),
        answer("c1", "Successfully created and wrote to new file: /p/new."),
        answer("c2", "File /p/old has not been read in this session.", failed=True),
        message("b", use("c3", "edit", file_path="/p/old"), tokens=8),
        answer("c3", "The file: /p/old has been updated."),
    ]
    assert [(file.path, file.change) for file in read(lines_).files] == [
        ("new", "created"),
        ("old", "modified"),
    ]


def test_kinds_of_its_own_tools() -> None:
    names = (
        "run_shell_command",
        "read_file",
        "write_file",
        "edit",
        "grep_search",
        "agent",
        "web_fetch",
        "todo_write",
        "mcp__a__b",
        "x",
    )
    report = read([INIT, *(message(name, use(name, name), tokens=3) for name in names)])
    assert [call.kind for call in report.tools] == [
        "shell",
        "file_read",
        "file_write",
        "file_edit",
        "search",
        "subagent",
        "web",
        "todo",
        "mcp",
        "other",
    ]


def test_version_folder_and_model() -> None:
    report = steno.read(case("qwen", "tools"))
    assert (report.agent, report.agent_version, report.cwd, report.model) == (
        "qwen",
        "0.15.10",
        "/tmp/demo/project",
        "fake-coder",
    )


def test_every_line_of_a_recording_is_known() -> None:
    assert all(
        steno.read(case("qwen", name)).lines.unknown == 0
        for name in ("tools", "partial", "success_json", "sigint")
    )
    assert len(lines(case("qwen", "success_json"))) == 3


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        (LaunchOptions(prompt="hi"), []),
        (
            LaunchOptions(model="qwen3-coder", max_turns=4),
            ["-m", "qwen3-coder", "--max-session-turns", "4"],
        ),
        (LaunchOptions(resume=SESSION), ["--resume", SESSION]),
        (LaunchOptions(continue_=True, partial=True), ["--continue", "--include-partial-messages"]),
        (LaunchOptions(permission_mode="acceptEdits"), ["--approval-mode", "auto-edit"]),
        (
            LaunchOptions(permission_mode="yolo", system_prompt="be brief"),
            ["--approval-mode", "yolo", "--append-system-prompt", "be brief"],
        ),
        (
            LaunchOptions(allow=("edit",), deny=("web_fetch",)),
            ["--allowed-tools=edit", "--exclude-tools=web_fetch"],
        ),
        (LaunchOptions(mcp_config=("{}",), extra=("--bare",)), ["--mcp-config={}", "--bare"]),
    ],
)
def test_the_command_line(options: LaunchOptions, argv: list[str]) -> None:
    launch = START(options, "qwen", NEWEST_PROGRAM)
    assert (list(launch.argv), launch.stdin, launch.stdout) == (
        ["qwen", "-o", "stream-json", *argv],
        options.prompt.encode(),
        "file",
    )


def test_a_chat_that_is_torn_or_strange_never_stops_the_reading(tmp_path: Path) -> None:
    """Unreadable lines are skipped; without the run, there is a warning about the session's sum."""
    recording = case("qwen", "resume_chat")
    shutil.copytree(recording, tmp_path / "run")
    (chat,) = (tmp_path / "run" / "sessions").rglob("*.jsonl")
    whole = chat.read_bytes()
    strange = (
        b'[]\n{"type": 3}\n\xff\xfe\n{"systemPayload": {"uiEvent": [1]}, "sessionId": 5}\n'
        b'"\\ud83d"\n{"type": "us'
    )
    chat.write_bytes(whole + strange)
    assert steno.read(tmp_path / "run").tokens == steno.read(recording).tokens
    chat.write_bytes(strange)
    report = steno.read(tmp_path / "run")
    assert report.tokens.total == 32_310
    assert report.warnings == [
        "tokens are an upper bound and requests unknown: the agent counts over the whole "
        "session, which may have earlier runs and requests that its stream does not show"
    ]


CHAT = {"sessionId": SESSION, "version": "0.24.4", "cwd": "/p"}


def chat_line(id_: str, kind: str, words: str, tokens: int = 0, **more: Any) -> Json:
    usage = {"promptTokenCount": 100 + tokens, "candidatesTokenCount": tokens}
    about = {"uuid": id_, "timestamp": "2026-11-19T05:08:00.000Z", "type": kind, **CHAT}
    spent = {"usageMetadata": {**usage, "cachedContentTokenCount": 100}} if tokens else {}
    parts = {"parts": [{"text": words}]}
    return {**about, "model": "coder", "message": parts, **spent, **more}


def telemetry(id_: str, tokens: int, prompt: str = "########0", **more: Any) -> Json:
    counters = {
        "input_token_count": 100 + tokens,
        "output_token_count": tokens,
        "cached_content_token_count": 100,
    }
    entry = {"event.name": "qwen-code.api_response", "model": "coder", **counters, **more}
    payload = {"uiEvent": {**entry, "prompt_id": f"{SESSION}{prompt}"}}
    return {"uuid": id_, "type": "system", **CHAT, "systemPayload": payload}


@pytest.mark.parametrize(
    ("prompt", "more", "name"),
    [
        ("#general-purpose-ddh4us#0", {}, "general-purpose-ddh4us"),  # 0.12
        (
            "#general-purpose-c4y1s6#0",
            {"subagent_name": "general-purpose"},
            "general-purpose-c4y1s6",
        ),
        (
            "#x#0",
            {"subagent_name": "general-purpose", "subagent_id": "general-call_1"},
            "general-call_1",
        ),
    ],
)
def test_the_requests_of_a_subagent_are_in_the_chat(
    prompt: str, more: Json, name: str, tmp_path: Path
) -> None:
    """Once, though 0.24 writes a file of the subagent, too; a notification is no prompt."""
    ended = chat_line("u2", "user", "<task-notification>", subtype="notification")
    chat = [
        chat_line("u1", "user", "do"),
        telemetry("t1", 7),
        chat_line("a1", "assistant", "Let me.", 7),
        telemetry("t2", 11, prompt, **more),
        ended,
        telemetry("t3", 13, "########0/automatic/3"),
        chat_line("a2", "assistant", "Done.", 13),
    ]
    path = tmp_path / "chats" / f"{SESSION}.jsonl"
    path.parent.mkdir()
    path.write_bytes(dump(chat))
    report = steno.read(path)
    assert (report.requests, report.tokens.output, report.context.used) == (3, 31, 113)
    assert [(entry.id, entry.tokens.output) for entry in report.subagents] == [(name, 11)]

    own = tmp_path / "agent.jsonl"
    own.write_bytes(dump([chat_line("b1", "assistant", "Found.", 11, isSidechain=True)]))
    assert steno.read(own).tokens.total is None

    stdout = [
        INIT,
        message("m1", text("Let me."), tokens=7),
        message("m2", text("Done."), tokens=13),
    ]
    parser = steno.RunParser(AGENTS["qwen"])
    parser.feed_lines(dump([*stdout, result("Done.", tokens=31)]).splitlines(keepends=True))
    parser.add_events(parser.enrich(dump(chat).splitlines(keepends=True)))
    whole = parser.report()
    assert (whole.requests, whole.tokens.output, whole.warnings) == (3, 31, [])
