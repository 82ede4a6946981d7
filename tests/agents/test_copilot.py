"""Copilot: its traps, its sums checked by plain JSON, its command line (A1)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

import steno
from steno import event as ev
from steno.agents import AGENTS, LaunchOptions, detect_agent
from tests.golden import CASES, ROOT, name
from tests.script import Json, dump, folder, plain, stream

COPILOT = AGENTS["copilot"]
STREAMS = [case for case in CASES if case.parents[1].name == "copilot"]
SESSION = "11111111-2222-4333-8444-555555555555"


def line(kind: str, second: int = 0, **data: Any) -> Json:
    return {
        "type": kind,
        "data": data,
        "id": f"e{second}",
        "timestamp": f"2026-11-15T12:00:{second:02d}.000Z",
    }


def result(code: int = 0, second: int = 9) -> Json:
    usage = {"totalApiDurationMs": 99_999, "sessionDurationMs": 99_999}
    return {
        "type": "result",
        "timestamp": f"2026-11-15T12:00:{second:02d}.000Z",
        "sessionId": SESSION,
        "exitCode": code,
        "usage": usage,
    }


def report(*given: Json) -> steno.Report:
    """The report of a stream of these lines, without the file of its session."""
    return steno.read(stream(line("session.tools_updated", model="gpt-5"), *given))


def lines(path: Path) -> list[Json]:
    return [
        json.loads(text) for text in path.read_text("utf-8").split("\n") if text.startswith("{")
    ]


# -- sums, independently ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_tokens_are_the_raw_records_added_up(case: Path) -> None:
    """Only the file of the session tells tokens; those of an earlier run of it are not this run's."""
    prompt = next(
        (
            one["data"]["messageId"]
            for one in lines(case / "stdout")
            if one["type"] == "user.message"
        ),
        None,
    )
    used: list[Json] = []
    mine, kept = False, sorted((case / "sessions").rglob("events.jsonl"))
    for one in [one for path in kept for one in lines(path)]:
        if one["type"] in ("session.start", "session.resume") and not mine:
            used = []
        mine = mine or (one["type"] == "user.message" and one["data"]["messageId"] == prompt)
        used += [one["data"]["usage"]] if one["type"] == "session.usage_record" else []
    tokens = steno.read(case).tokens
    if not used:
        assert tokens.total is None
        return
    new, read, written, output = (
        sum(usage[key] for usage in used)
        for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    )
    assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
        new - read - written,
        written,
        read,
        output,
    )
    assert tokens.total == new + output


# -- traps ----------------------------------------------------------------------------------------------------


def test_refused_calls_are_no_success() -> None:
    """The exit code is 0."""
    found = report(
        line(
            "tool.execution_start",
            1,
            toolCallId="c",
            toolName="bash",
            arguments={"command": "git push origin"},
        ),
        line(
            "tool.execution_complete",
            2,
            toolCallId="c",
            success=False,
            error={"message": "Permission denied", "code": "denied"},
        ),
        line("assistant.message", 3, content="I could not."),
        result(),
    )
    assert (found.verdict, found.ok, found.exit_code) == ("permission", False, None)
    assert found.hint == "to allow it: --allow-tool 'shell(git push)'"


def test_a_command_that_fails_is_a_failed_call() -> None:
    """To Copilot it is a success: it did run."""
    found = report(
        line(
            "tool.execution_start",
            1,
            toolCallId="c",
            toolName="bash",
            arguments={"command": "exit 3"},
        ),
        line(
            "tool.execution_complete",
            3,
            toolCallId="c",
            success=True,
            shellExecution={"exitCode": 3},
            result={"content": "no"},
        ),
        line("assistant.message", 4, content="Done."),
        result(),
    )
    assert [(tool.ok, tool.error, tool.duration_ms) for tool in found.tools] == [
        (False, "no", 2000)
    ]
    assert found.verdict == "success"


def test_the_times_of_a_result_are_the_sessions() -> None:
    """A run's own are taken from its lines."""
    found = report(
        line("model.call_finished", 2, dispatchDurationMs=700, outcome="success"),
        line("assistant.message", 3, content="Done."),
        result(0, 5),
    )
    assert (found.duration_ms, found.duration_api_ms, found.session_id) == (5000, 700, SESSION)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ({"errorType": "authentication", "statusCode": 401}, "auth"),
        ({"errorType": "rate_limit", "statusCode": 429}, "rate_limit"),
        ({"errorType": "quota", "statusCode": 402}, "rate_limit"),
        ({"errorType": "context_limit", "statusCode": 400}, "context_full"),
        ({"errorType": "query", "statusCode": 400}, "invalid_request"),
        ({"errorType": "query", "statusCode": 503}, "api"),
        ({"errorType": "query", "message": "fetch failed"}, "network"),
    ],
)
def test_an_error_by_its_fields(error: Json, verdict: str) -> None:
    assert (
        report(line("session.error", 1, **{"message": "it failed", **error}), result(1)).verdict
        == verdict
    )


def test_an_error_that_was_overcome_is_none() -> None:
    found = report(
        line("session.error", 1, errorType="query", message="x"),
        line("assistant.message", 2, content="Ok."),
        result(),
    )
    assert (found.verdict, found.error) == ("success", None)


def test_an_abort_is_no_success_whatever_the_result_says() -> None:
    """Seen: an interrupt, and then a result with the exit code 0."""
    cut = line("abort", 2, reason="user_abort")
    assert (
        report(line("assistant.message", 1, content="Half."), cut, result()).verdict
        == "interrupted"
    )
    again = (
        line("user.message", 3, content="go on", messageId="m"),
        line("assistant.message", 4, content="Done."),
    )
    assert report(cut, *again, result()).verdict == "success"


def test_what_it_sends_to_the_background_it_waits_for() -> None:
    call = line(
        "tool.execution_start",
        1,
        toolCallId="c",
        toolName="bash",
        arguments={"command": "make", "mode": "async"},
    )
    answer = line(
        "tool.execution_complete", 2, toolCallId="c", success=True, result={"content": "started"}
    )
    text = line("assistant.message", 3, content="Done.")
    assert [task.status for task in report(call, answer, text, result()).background] == [
        "completed"
    ]
    assert [task.status for task in report(call, answer, text).background] == ["running"]


def test_pieces_of_an_answer_that_was_cut_off() -> None:
    assert (
        report(
            line("assistant.message_delta", 1, deltaContent="Hal"),
            line("assistant.message_delta", 1, deltaContent="f."),
        ).text
        == "Half."
    )


# -- nothing lost, nothing raises -------------------------------------------------------------------------------

STRANGE = (
    line("session.hologram"),
    line("oracle.spoke", 3, content="x"),
    {"type": "tool.frozen", "data": {}, "id": "x"},
)


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_events_of_unknown_kinds_change_nothing_but_their_count(case: Path, tmp_path: Path) -> None:
    """I4: one in twenty of a kind that nobody has seen."""
    dice, told = random.Random(6), (case / "stdout").read_bytes().splitlines(keepends=True)
    added = max(1, len(told) // 19) if told else 0
    for _ in range(added):
        told.insert(
            dice.randint(1, len(told) - 1),
            dump({**dice.choice(STRANGE), "timestamp": None}) + b"\n",
        )
    errors = (case / "stderr").read_bytes() if (case / "stderr").exists() else None
    where = folder(tmp_path / "run", b"".join(told), int((case / "exit_code").read_text()), errors)
    if (case / "sessions").exists():
        (where / "sessions").symlink_to(case / "sessions")
    got, wanted = plain(steno.read(where)), plain(steno.read(case))
    assert got["lines"].pop("unknown") == added
    for found in (got, wanted):
        found["lines"] = found["evidence"] = None
        found["warnings"] = [note for note in found["warnings"] if "kinds this version" not in note]
    assert got == wanted


def test_odd_types_cost_only_their_field() -> None:
    """I6: a field of the wrong type is absent; nothing raises."""
    found = report(
        line("assistant.message", 1, content=5),
        line("tool.execution_start", 1, toolCallId=5, toolName=None, arguments="x"),
        line(
            "tool.execution_complete",
            2,
            toolCallId="c",
            success="no",
            fileEdits={},
            error=[],
            result=5,
        ),
        {"type": "user.message", "data": "hi", "id": "x", "timestamp": 5},
        {"type": "result", "exitCode": "0", "sessionId": 5},
        line("assistant.message", 4, content="Still here."),
        result(),
    )
    assert (found.agent, found.text) == ("copilot", "Still here.")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name == "copilot-1.0.102"], ids=name
)
def test_a_file_in_two_parts_says_the_same(case: Path) -> None:
    """L3: what grew is read on from where it ended; the short way to the sums agrees."""
    told = (case / "events.jsonl").read_bytes().splitlines()
    whole = COPILOT.reader()
    wanted = [
        encode(event) for number, text in enumerate(told, 1) for event in whole.read(text, number)
    ]
    for cut in range(len(told)):
        first, second = COPILOT.reader(), COPILOT.reader()
        got = [
            encode(event)
            for number, text in enumerate(told[:cut], 1)
            for event in first.read(text, number)
        ]
        second.restore(first.state())
        got += [
            encode(event)
            for number, text in enumerate(told[cut:], cut + 1)
            for event in second.read(text, number)
        ]
        assert got == wanted
    usages = [
        encode(event)
        for event in COPILOT.transcripts.scan_usage(told)
        if isinstance(event, ev.Usage)
    ]
    assert usages == [text for text in wanted if b'"event":"usage"' in text]
    assert COPILOT.transcripts.is_line(told[0])
    assert all(detect_agent(text) is COPILOT for text in told)


def test_the_file_is_found_where_copilot_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ROOT / "copilot/1.0.102/resume_second_kept"
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path))
    (tmp_path / "session-state").symlink_to(case / "sessions")
    (tmp_path / "run.jsonl").write_bytes((case / "stdout").read_bytes())
    found = steno.read(tmp_path / "run.jsonl")
    assert (found.tokens.total, found.agent_version, found.context.limit) == (
        9062,
        "1.0.102",
        128_000,
    )


# -- how it is started --------------------------------------------------------------------------------------------

BARE = ("copilot", "--output-format", "json", "--no-auto-update", "--no-color")


@pytest.mark.parametrize(
    ("ask", "more"),
    [
        (LaunchOptions(prompt="do"), ()),
        (LaunchOptions(prompt="do", resume=SESSION), (f"--resume={SESSION}",)),
        (
            LaunchOptions(prompt="do", session_id=SESSION, model="gpt-5"),
            ("--model", "gpt-5", "--session-id", SESSION),
        ),
        (LaunchOptions(prompt="do", continue_=True), ("--continue",)),
        (LaunchOptions(prompt="do", permission_mode="bypassPermissions"), ("--allow-all",)),
        (LaunchOptions(prompt="do", permission_mode="allow-all-tools"), ("--allow-all-tools",)),
        (LaunchOptions(prompt="do", permission_mode="acceptEdits"), ("--allow-tool", "write")),
        (LaunchOptions(prompt="do", permission_mode="autopilot"), ("--mode", "autopilot")),
        (
            LaunchOptions(prompt="do", allow=("write", "shell(ls)"), deny=("url",)),
            ("--allow-tool=write", "--allow-tool=shell(ls)", "--deny-tool=url"),
        ),
        (
            LaunchOptions(prompt="do", mcp_config=("a.json", "{}")),
            ("--additional-mcp-config=@a.json", "--additional-mcp-config={}"),
        ),
        (
            LaunchOptions(prompt="do", add_dirs=("/a",), extra=("--plain-diff",)),
            ("--add-dir=/a", "--plain-diff"),
        ),
    ],
)
def test_the_command_line(ask: LaunchOptions, more: tuple[str, ...]) -> None:
    """R1: the prompt goes by stdin."""
    begun = COPILOT.launch.build_command(ask, "copilot", None)
    assert (begun.argv, begun.stdin, begun.stdout) == ((*BARE, *more), b"do", "pipe")


def test_what_it_has_no_words_for_is_a_field_of_an_ask() -> None:
    assert set(COPILOT.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)
