"""Copilot: special cases, token sums checked with plain JSON, the command line (A1)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

import steno
from steno.agents import AGENTS, LaunchOptions, detect_agent
from steno.agents.base import NEWEST_PROGRAM
from steno.recording.open import read_transcripts
from tests.golden import CASES, ROOT, name
from tests.support.claude_lines import Json, dump, folder, plain, stream

COPILOT = AGENTS["copilot"]
STREAMS = [
    case
    for case in CASES
    if case.parents[1].name == "copilot" and case.parent.name not in ("1.0.60", "1.0.92")
]
SESSION = "11111111-2222-4333-8444-555555555555"


def line(kind: str, second: int = 0, **data: Any) -> Json:
    return {
        "type": kind,
        "data": data,
        "id": f"e{second}",
        "parentId": None,
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


def report(*lines_: Json) -> steno.Report:
    """The report of a stream of these lines, without a session file."""
    return steno.read(stream(line("session.tools_updated", model="gpt-5"), *lines_))


def lines(path: Path) -> list[Json]:
    return [
        json.loads(text) for text in path.read_text("utf-8").split("\n") if text.startswith("{")
    ]


# -- token sums, checked independently ---------------------------------------------------------


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_tokens_are_the_raw_records_added_up(case: Path) -> None:
    """Only the session file has tokens, those of earlier runs included."""
    prompt = next(
        (
            entry["data"]["messageId"]
            for entry in lines(case / "stdout")
            if entry["type"] == "user.message"
        ),
        None,
    )
    usages: list[Json] = []
    is_own_run = False
    files = sorted((case / "sessions").rglob("events.jsonl"))
    for entry in [entry for path in files for entry in lines(path)]:
        if entry["type"] in ("session.start", "session.resume") and not is_own_run:
            usages = []
        is_own_run = is_own_run or (
            entry["type"] == "user.message" and entry["data"]["messageId"] == prompt
        )
        usages += [entry["data"]["usage"]] if entry["type"] == "session.usage_record" else []
    tokens = steno.read(case).tokens
    if not usages:
        assert tokens.total is None
        return
    input_, read, written, output = (
        sum(usage[key] for usage in usages)
        for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    )
    assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
        input_ - read - written,
        written,
        read,
        output,
    )
    assert tokens.total == input_ + output


# -- versions that record no requests ----------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "tokens", "requests"),
    [
        # What the model server sent: input, cache write, cache read, output.
        ("1.0.60/edit_and_shell", (5015, 0, 40000, 315), 5),
        ("1.0.60/resume_second_sums", (1408, 0, 18000, 120), 2),
        ("1.0.92/resume_second_sums", (8, 1400, 18000, 120), 2),
    ],
)
def test_the_sums_of_a_process_or_a_session_give_the_run(
    case: str, tokens: tuple[int, ...], requests: int
) -> None:
    """1.0.60 writes the sums of the process, 1.0.92 those of the session."""
    found = steno.read(ROOT / "copilot" / case)
    used = found.tokens
    assert (used.input, used.cache_write, used.cache_read, used.output) == tokens
    assert (found.requests, found.cost.source) == (requests, "computed")
    assert (found.context.used, found.context.source) == (sum(tokens[:3]), "upper_bound")


def test_files_without_a_list_come_from_the_diff() -> None:
    found = steno.read(ROOT / "copilot/1.0.60/edit_and_shell")
    assert [(file.path, file.change, file.tools) for file in found.files] == [
        ("src/app.py", "modified", ["call_000002"]),
        ("src/new.py", "created", ["call_000003"]),
    ]


def test_a_diff_inside_a_file_is_no_file() -> None:
    """Its lines start with + or -; a deletion and a diff of two names are read as well."""
    diff = (
        "\ndiff --git a/p/x b/p/x\nnew file mode 100644\n+diff --git a/p/y b/p/y\n"
        "diff --git a/p/z b/p/z\ndeleted file mode 100644\n-gone\n"
        "diff --git a/p/one b/p/two\n"
    )
    call = {"toolCallId": "c", "toolName": "edit", "arguments": {"path": "/p/x"}}
    done = {"toolCallId": "c", "success": True, "result": {"detailedContent": diff}}
    lines_ = (line("tool.execution_start", 1, **call), line("tool.execution_complete", 2, **done))
    assert [(file.absolute, file.change) for file in report(*lines_, result()).files] == [
        ("/p/x", "created"),
        ("/p/z", "deleted"),
    ]
    seen = {**call, "toolName": "view"}
    lines_ = (line("tool.execution_start", 1, **seen), line("tool.execution_complete", 2, **done))
    assert report(*lines_, result()).files == []


def shutdown(second: int, count: int, *files: str) -> Json:
    usage = {
        "inputTokens": 100 * count,
        "outputTokens": 10 * count,
        "cacheReadTokens": 40 * count,
        "cacheWriteTokens": 0,
        "reasoningTokens": 0,
    }
    return line(
        "session.shutdown",
        second,
        modelMetrics={"gpt-5": {"requests": {"count": count}, "usage": usage}},
        codeChanges={"filesModified": list(files)},
    )


def with_session_file(path: Path, stdout: list[Json], session: list[Json]) -> steno.Report:
    case = folder(path / "run", stream(*stdout), 0)
    (case / "sessions" / SESSION).mkdir(parents=True)
    (case / "sessions" / SESSION / "events.jsonl").write_bytes(stream(*session))
    return steno.read(case)


PROMPT = line("user.message", 5, content="do", interactionId="i2")
ANSWER = line("assistant.message", 6, content="Done.")
START = line("session.start", 0, sessionId=SESSION, copilotVersion="1.0.60")
RESUME = line("session.resume", 4)
UNKNOWN = (None, None, False)  # tokens, requests, and no bound


@pytest.mark.parametrize(
    ("session", "total", "requests", "is_bound"),
    [
        ([START, PROMPT, ANSWER, shutdown(9, 1)], 110, 1, False),
        ([START, PROMPT, ANSWER, shutdown(9, 3)], 330, 3, False),
        ([START, shutdown(3, 2), RESUME, PROMPT, ANSWER, shutdown(9, 3)], 110, 1, False),
        ([START, shutdown(3, 2), RESUME, PROMPT, ANSWER, shutdown(9, 1)], 110, 1, False),
        ([START, shutdown(3, 1), RESUME, PROMPT, ANSWER, shutdown(9, 1)], 110, 1, False),
        ([START, RESUME, PROMPT, ANSWER, shutdown(9, 1)], 110, 1, False),
        ([START, RESUME, PROMPT, ANSWER, shutdown(9, 3)], 330, None, True),
        ([START, RESUME, PROMPT, ANSWER], *UNKNOWN),
        ([START, shutdown(3, 2), RESUME, PROMPT, ANSWER, RESUME, shutdown(9, 3)], *UNKNOWN),
        ([START, ANSWER, shutdown(3, 2)], *UNKNOWN),
    ],
)
def test_the_part_of_a_run(
    tmp_path: Path, session: list[Json], total: int | None, requests: int | None, is_bound: bool
) -> None:
    """Sums of earlier runs are subtracted; if those are unknown, the sum is an upper bound."""
    stdout = [line("session.tools_updated", model="gpt-5"), PROMPT, ANSWER, result()]
    found = with_session_file(tmp_path, stdout, session)
    assert (found.verdict, found.tokens.total, found.requests) == ("success", total, requests)
    bounds = [note for note in found.warnings if note.startswith("tokens are an upper bound")]
    assert bool(bounds) is is_bound


def test_a_recording_keeps_the_sums_of_earlier_runs(tmp_path: Path) -> None:
    """A resumed run is recorded with its own lines, the first one and the shutdowns before."""
    path = tmp_path / SESSION / "events.jsonl"
    path.parent.mkdir()
    old = line("user.message", 1, content="before", interactionId="i1")
    own = [RESUME, PROMPT, ANSWER, shutdown(9, 3)]
    path.write_bytes(stream(START, old, shutdown(3, 2), *own))
    transcripts = COPILOT.transcripts
    assert transcripts.pattern is not None
    kept = read_transcripts(
        transcripts.pattern(SESSION),
        [str(tmp_path)],
        "2026-11-15T12:00:04.000Z",
        transcripts.totals_marker,
    )
    assert b"".join(kept) == stream(START, shutdown(3, 2), *own)


def test_a_file_that_only_the_shutdown_has(tmp_path: Path) -> None:
    """Files of earlier runs are not those of this one."""
    session = [START, shutdown(3, 1, "/p/a"), RESUME, PROMPT, shutdown(9, 2, "/p/a", "/p/b")]
    stdout = [line("session.tools_updated", model="gpt-5"), PROMPT, ANSWER, result()]
    found = with_session_file(tmp_path, stdout, session)
    assert [(file.absolute, file.change) for file in found.files] == [("/p/b", "modified")]


def test_a_run_without_a_result_has_the_sums_of_its_shutdown(tmp_path: Path) -> None:
    stdout = [line("session.tools_updated", model="gpt-5"), PROMPT, ANSWER]
    session = [START, PROMPT, ANSWER, shutdown(9, 1)]
    case = folder(tmp_path / "run", stream(*stdout), -9)
    (case / "sessions" / SESSION).mkdir(parents=True)
    (case / "sessions" / SESSION / "events.jsonl").write_bytes(stream(*session))
    found = steno.read(case)
    assert (found.verdict, found.tokens.total) == ("killed", 110)


@pytest.mark.parametrize(
    ("reason", "verdict", "ok"),
    [
        ("stop", "success", True),
        ("content_filter", "refused", False),
        ("length", "no_result", False),
    ],
)
def test_only_the_session_file_tells_why_an_answer_ended(
    tmp_path: Path, reason: str, verdict: str, ok: bool
) -> None:
    usage = {"model": "gpt-5", "inputTokens": 30, "outputTokens": 4, "finishReason": reason}
    stdout = [line("session.tools_updated", model="gpt-5"), PROMPT, ANSWER, result()]
    session = [START, PROMPT, line("session.usage_record", 6, usage=usage), ANSWER]
    found = with_session_file(tmp_path, stdout, session)
    assert (found.verdict, found.ok, found.tokens.total) == (verdict, ok, 34)
    assert found.stop_reason == {"stop": "end_turn", "length": "max_tokens"}.get(reason, "refusal")


def test_a_run_without_a_result_is_found_by_its_prompt(tmp_path: Path) -> None:
    """Its stream does not name the session; files beside it may be those of other runs."""
    case = folder(
        tmp_path / "run", stream(line("session.tools_updated", model="gpt-5"), PROMPT), -2
    )
    usage = {"model": "gpt-5", "inputTokens": 30, "outputTokens": 4}
    other = "22222222-2222-4333-8444-555555555555"
    for session, prompt in ((SESSION, "i2"), (other, "i9")):
        path = case / "session-files" / session / "events.jsonl"
        path.parent.mkdir(parents=True)
        start = line("session.start", 0, sessionId=session, copilotVersion="1.0.102")
        asked = line("user.message", 5, content="do", interactionId=prompt)
        path.write_bytes(stream(start, asked, line("session.usage_record", 6, usage=usage)))
    found = steno.read(case)
    assert (found.session_id, found.tokens.total, found.requests) == (SESSION, 34, 1)
    assert found.warnings == [
        "tokens, cost and requests are a lower bound: the run ended without a result"
    ]


def test_a_session_file_without_requests_has_the_sums_of_all_runs() -> None:
    """Of the process in 1.0.60 and of the session in 1.0.92: the same conversation."""
    for version in ("1.0.60", "1.0.92"):
        (path,) = (ROOT / "copilot" / version / "resume_second_sums").rglob("events.jsonl")
        found = steno.read(path)
        assert (found.tokens.total, found.requests) == (7 * 9764, 7)


# -- special cases -----------------------------------------------------------------------------


def test_refused_calls_are_no_success() -> None:
    """The exit code is 0."""
    report_ = report(
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
    assert (report_.verdict, report_.ok, report_.exit_code) == ("permission", False, None)
    assert report_.hint == "to allow it: --allow-tool 'shell(git push)'"


def test_a_command_that_fails_is_a_failed_call() -> None:
    """Copilot calls it a success."""
    report_ = report(
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
    assert [(tool.ok, tool.error, tool.duration_ms) for tool in report_.tools] == [
        (False, "no", 2000)
    ]
    assert report_.verdict == "success"


def test_the_times_of_a_result_are_the_sessions() -> None:
    """The durations of a run come from the times of its lines."""
    report_ = report(
        line("model.call_finished", 2, dispatchDurationMs=700, outcome="success"),
        line("assistant.message", 3, content="Done."),
        result(0, 5),
    )
    assert (report_.duration_ms, report_.duration_api_ms, report_.session_id) == (
        5000,
        700,
        SESSION,
    )


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
    report_ = report(
        line("session.error", 1, errorType="query", message="x"),
        line("assistant.message", 2, content="Ok."),
        result(),
    )
    assert (report_.verdict, report_.error) == ("success", None)


def test_an_abort_is_no_success_whatever_the_result_says() -> None:
    """A result with exit code 0 may follow an interrupt."""
    abort = line("abort", 2, reason="user_abort")
    assert (
        report(line("assistant.message", 1, content="Half."), abort, result()).verdict
        == "interrupted"
    )
    resumed = (
        line("user.message", 3, content="continue", messageId="m"),
        line("assistant.message", 4, content="Done."),
    )
    assert report(abort, *resumed, result()).verdict == "success"


def test_it_waits_for_background_commands() -> None:
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


# -- unknown lines and wrong types -------------------------------------------------------------

UNKNOWN_LINES = (
    line("session.hologram"),
    line("oracle.spoke", 3, content="x"),
    {"type": "tool.frozen", "data": {}, "id": "x"},
)


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_events_of_unknown_kinds_change_nothing_but_their_count(case: Path, tmp_path: Path) -> None:
    """I4: at least one line in twenty is of an unknown kind."""
    rng = random.Random(6)
    lines_ = (case / "stdout").read_bytes().splitlines(keepends=True)
    added = max(1, len(lines_) // 19) if lines_ else 0
    for _ in range(added):
        lines_.insert(
            rng.randint(1, len(lines_) - 1),
            dump({**rng.choice(UNKNOWN_LINES), "timestamp": None}) + b"\n",
        )
    errors = (case / "stderr").read_bytes() if (case / "stderr").exists() else None
    case_folder = folder(
        tmp_path / "run", b"".join(lines_), int((case / "exit_code").read_text()), errors
    )
    if (case / "sessions").exists():
        (case_folder / "sessions").symlink_to(case / "sessions")
    actual, expected = plain(steno.read(case_folder)), plain(steno.read(case))
    assert actual["lines"].pop("unknown") == added
    for report_ in (actual, expected):
        report_["lines"] = None
        report_["evidence"] = None
        report_["warnings"] = [
            note for note in report_["warnings"] if "kinds this version" not in note
        ]
    assert actual == expected


def test_odd_types_cost_only_their_field() -> None:
    """I6: a field of the wrong type is absent; nothing raises."""
    report_ = report(
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
    assert (report_.agent, report_.text) == ("copilot", "Still here.")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name == "copilot-1.0.102"], ids=name
)
def test_a_file_in_two_parts_says_the_same(case: Path) -> None:
    """L3: a file that grew is read from where it ended; the usage scan agrees."""
    lines_ = (case / "events.jsonl").read_bytes().splitlines()
    whole = COPILOT.reader()
    expected = [
        encode(event) for number, text in enumerate(lines_, 1) for event in whole.read(text, number)
    ]
    for cut in range(len(lines_)):
        first, second = COPILOT.reader(), COPILOT.reader()
        actual = [
            encode(event)
            for number, text in enumerate(lines_[:cut], 1)
            for event in first.read(text, number)
        ]
        second.restore(first.state())
        actual += [
            encode(event)
            for number, text in enumerate(lines_[cut:], cut + 1)
            for event in second.read(text, number)
        ]
        assert actual == expected
    assert COPILOT.transcripts.is_line(lines_[0])
    assert all(detect_agent(text) is COPILOT for text in lines_)


def test_the_file_is_found_where_copilot_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ROOT / "copilot/1.0.102/resume_second_kept"
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path))
    (tmp_path / "session-state").symlink_to(case / "sessions")
    (tmp_path / "run.jsonl").write_bytes((case / "stdout").read_bytes())
    report_ = steno.read(tmp_path / "run.jsonl")
    assert (report_.tokens.total, report_.agent_version, report_.context.limit) == (
        9062,
        "1.0.102",
        128_000,
    )


# -- command line ------------------------------------------------------------------------------

BARE = ("copilot", "--output-format", "json", "--no-auto-update", "--no-color")


@pytest.mark.parametrize(
    ("options", "more"),
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
def test_the_command_line(options: LaunchOptions, more: tuple[str, ...]) -> None:
    """R1: the prompt is passed on stdin."""
    launch = COPILOT.launch.build_command(options, "copilot", NEWEST_PROGRAM)
    assert (launch.argv, launch.stdin, launch.stdout) == ((*BARE, *more), b"do", "pipe")


def test_unsupported_options_are_launch_options() -> None:
    assert set(COPILOT.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)
