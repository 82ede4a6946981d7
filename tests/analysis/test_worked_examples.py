"""Worked examples of five early notes of the project, with their figures."""

from typing import Any

import pytest

import steno
from steno import event as ev
from steno.report import (
    ChangedFile,
    Context,
    Cost,
    DeniedCall,
    LineCounts,
    ModelSummary,
    RateLimitStatus,
    Report,
    Tokens,
)
from tests.support.claude_lines import (
    Json,
    answer,
    assistant,
    call,
    denied,
    dump,
    init,
    outcome,
    report,
    stream,
    text,
    usage,
    user,
)

SONNET = "claude-sonnet-4-5-20250929"
HAIKU = "claude-haiku-4-5-20251001"

# -- 000: three results of an orchestrator; modelUsage of that version counts output only --------


def output_only(output: int, cost: float) -> Json:
    return {
        "inputTokens": 0,
        "outputTokens": output,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
        "webSearchRequests": 0,
        "costUSD": cost,
        "contextWindow": 200000,
    }


def lone_result(
    counters: tuple[int, int, int, int], models: Json, cost: float, **more: Any
) -> Json:
    line = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": "550e8400-e29b-41d4-a716-446655440001",
        "total_cost_usd": cost,
        "usage": {
            **usage(*counters),
            "server_tool_use": {"web_search_requests": 0},
            "service_tier": "standard",
        },
        "modelUsage": models,
        "permission_denials": [],
    }
    return {**line, **more}


SIMPLE = lone_result(
    (9, 12871, 36391, 510),
    {SONNET: output_only(774, 0.01161), HAIKU: output_only(407, 0.0020350000000000004)},
    0.013645,
    result="Two folders and a file.",
    num_turns=2,
    duration_ms=14301,
    duration_api_ms=27618,
)
CONTINUED = lone_result(
    (10, 1067, 51013, 895),
    {HAIKU: output_only(277, 0.001385), SONNET: output_only(895, 0.013425)},
    0.01481,
    result="I count 40 of them.",
    num_turns=3,
    duration_ms=19015,
    duration_api_ms=20951,
)
STOPPED = lone_result(
    (3, 8999, 14981, 456),
    {HAIKU: output_only(353, 0.001765), SONNET: output_only(11043, 0.165645)},
    0.16741,
    subtype="error_max_turns",
    num_turns=2,
    duration_ms=207832,
    duration_api_ms=222532,
    session_id="550e8400-e29b-41d4-a716-446655440002",
    permission_denials=[
        denied(
            "toolu_01W8",
            "Bash",
            command="tree -L 3 /srv/project/src -I '*.pyc'",
            description="Show it",
        )
    ],
    errors=[],
)


@pytest.mark.parametrize(
    ("line", "tokens", "rate", "cost", "used"),
    [
        (SIMPLE, Tokens(9, 12871, 36391, 510, 0, 49781), 0.739, 0.013645, 49271),
        (CONTINUED, Tokens(10, 1067, 51013, 895, 0, 52985), 0.979, 0.01481, 52090),
        (STOPPED, Tokens(3, 8999, 14981, 456, 0, 24439), 0.625, 0.16741, 23983),
    ],
    ids=["simple", "continued", "stopped"],
)
def test_000_totals(line: Json, tokens: Tokens, rate: float, cost: float, used: int) -> None:
    found = report(line)
    assert (found.tokens, found.cost) == (tokens, Cost(cost, "reported"))
    assert found.cache_hit_rate is not None
    assert round(found.cache_hit_rate, 3) == rate
    assert (found.context.used, found.context.limit) == (used, 200_000)
    assert (found.context.source, found.context.limit_source) == ("upper_bound", "reported")
    assert (found.turns, found.duration_ms, found.duration_api_ms) == (
        line["num_turns"],
        line["duration_ms"],
        line["duration_api_ms"],
    )


def test_000_totals_below_the_usage_are_reported() -> None:
    notes = [report(line).warnings for line in (SIMPLE, CONTINUED)]
    assert notes == [
        ["modelUsage reports fewer tokens (1,181) than usage (49,781); using usage"],
        ["modelUsage reports fewer tokens (1,172) than usage (52,985); using usage"],
    ]


def test_000_verdicts() -> None:
    found = [report(line) for line in (SIMPLE, CONTINUED, STOPPED)]
    assert [(one.verdict, one.ok, one.result) for one in found] == [
        ("success", True, "Two folders and a file."),
        ("success", True, "I count 40 of them."),
        ("max_turns", False, None),
    ]
    assert [one.session_id for one in found] == [
        line["session_id"] for line in (SIMPLE, CONTINUED, STOPPED)
    ]


def test_000_each_model_has_its_cost() -> None:
    assert report(SIMPLE).models == {
        SONNET: ModelSummary(0, 0, 0, 774, 0.01161, 200_000, web_searches=0),
        HAIKU: ModelSummary(0, 0, 0, 407, 0.002035, 200_000, web_searches=0),
    }


def test_000_the_refused_command_gets_its_rule() -> None:
    command = "tree -L 3 /srv/project/src -I '*.pyc'"
    given = {"command": command, "description": "Show it"}
    assert report(STOPPED).denials == [
        DeniedCall("Bash", "toolu_01W8", given, None, f"Bash({command})")
    ]


@pytest.mark.parametrize(
    ("read", "level"),
    [(60_000, None), (70_000, "warn"), (80_000, "refresh"), (95_000, "critical")],
)
def test_000_a_full_window_is_warned_of(read: int, level: str | None) -> None:
    used = usage(0, 0, 2 * read, 1)
    lines = [init(model=SONNET), assistant(text("Done."), model=SONNET, used=used)]
    notes = [note for note in report(*lines).warnings if note.startswith("context: ")]
    percent = read // 1000
    assert notes == ([f"context: {percent}% of the window used ({level})"] if level else [])


# -- 001: the four events of saying hello --------------------------------------------------------


def greeting() -> list[Json]:
    counters = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 8885,
        "cache_read_input_tokens": 22239,
    }
    account = {
        "inputTokens": 3,
        "outputTokens": 4,
        "cacheReadInputTokens": 22239,
        "cacheCreationInputTokens": 8885,
        "contextWindow": 200000,
        "maxOutputTokens": 32000,
        "costUSD": 0.06676575,
    }
    return [
        {"type": "rate_limit_event"},
        {
            "type": "system",
            "subtype": "init",
            "tools": ["Task", "Bash"],
            "model": "claude-opus-4-6",
            "mcp_servers": [],
        },
        {
            "type": "assistant",
            "message": {"content": [text("hello")], "usage": {**counters, "output_tokens": 1}},
        },
        {
            "type": "result",
            "total_cost_usd": 0.06676575,
            "usage": {**counters, "output_tokens": 4},
            "modelUsage": {"claude-opus-4-6": account},
        },
    ]


def test_001_hello() -> None:
    found = report(*greeting())
    assert (found.verdict, found.text, found.model, found.requests) == (
        "success",
        "hello",
        "claude-opus-4-6",
        1,
    )
    assert (found.tokens, found.cost) == (
        Tokens(3, 8885, 22239, 4, 0, 31131),
        Cost(0.06676575, "reported"),
    )
    assert found.models == {
        "claude-opus-4-6": ModelSummary(3, 8885, 22239, 4, 0.06676575, 200_000, 32_000)
    }
    assert (found.limits, found.lines) == (RateLimitStatus(), LineCounts(read=4))


def test_001_hp_is_the_free_part_of_the_window() -> None:
    assert report(*greeting()).context == Context(
        used=31127,
        limit=200_000,
        fraction=0.155635,
        hp=100 - 0.155635 * 100,
        status="Healthy",
        text="84% HP [31k/200k] — Healthy",
        peak=31127,
        source="measured",
        limit_source="reported",
        compactions=0,
    )


# -- 002: a session as an array, and what each tool answers --------------------------------------


def session() -> list[Json]:
    counters = {
        "inputTokens": 7,
        "outputTokens": 97,
        "cacheReadInputTokens": 35012,
        "cacheCreationInputTokens": 3492,
    }
    account = {
        **counters,
        "webSearchRequests": 0,
        "costUSD": 0.025074,
        "contextWindow": 200000,
        "maxOutputTokens": 64000,
    }
    return [
        {
            "type": "system",
            "subtype": "init",
            "session_id": "abc123",
            "cwd": "/path",
            "model": SONNET,
            "tools": ["Read"],
        },
        assistant(
            text("Let me look."), message="msg_a", model=SONNET, used=usage(2, 3318, 15848, 78)
        ),
        assistant(
            call("tool1", "Read", file_path="test.txt"),
            message="msg_a",
            model=SONNET,
            used=usage(2, 3318, 15848, 78),
        ),
        answer("tool1", "one line"),
        assistant(
            text("One line is in it."), message="msg_b", model=SONNET, used=usage(5, 174, 19164, 1)
        ),
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": 5486,
            "duration_api_ms": 5431,
            "num_turns": 2,
            "result": "One line is in it.",
            "session_id": "abc123",
            "total_cost_usd": 0.025074,
            "usage": usage(7, 3492, 35012, 97),
            "modelUsage": {SONNET: account},
            "permission_denials": [],
        },
    ]


def test_002_an_array_of_events() -> None:
    found = steno.read(dump(session()))
    assert (found.verdict, found.ok, found.session_id) == ("success", True, "abc123")
    assert (found.text, found.result) == ("Let me look.\nOne line is in it.", "One line is in it.")
    assert (found.tokens, found.cost) == (
        Tokens(7, 3492, 35012, 97, 0, 38608),
        Cost(0.025074, "reported"),
    )
    assert (found.turns, found.requests, found.duration_ms, found.duration_api_ms) == (
        2,
        2,
        5486,
        5431,
    )
    assert (found.context.used, found.context.limit, found.context.source) == (
        19343,
        200_000,
        "measured",
    )
    assert found.models == {SONNET: ModelSummary(7, 3492, 35012, 97, 0.025074, 200_000, 64_000, 0)}
    assert [(tool.id, tool.name, tool.kind, tool.ok) for tool in found.tools] == [
        ("tool1", "Read", "file_read", True)
    ]


def test_002_the_start() -> None:
    line = init(
        model=SONNET,
        tools=["Task", "Bash"],
        mcp_servers=[{"name": "files", "status": "connected"}],
        permissionMode="plan",
    )
    (found,) = steno.events(stream(line))
    assert isinstance(found, ev.Started)
    assert (found.session, found.cwd, found.model) == (line["session_id"], line["cwd"], SONNET)
    assert (found.tools, found.permission_mode) == (("Task", "Bash"), "plan")
    assert found.mcp_servers == (("files", "connected"),)


def test_002_an_account_without_a_window() -> None:
    *lines, end = session()
    del end["modelUsage"][SONNET]["contextWindow"]
    context = report(*lines, end).context
    assert (context.limit, context.limit_source) == (200_000, "known")


def _outcome(tool: str, told: Any) -> ev.ToolResultDetails:
    data = stream(assistant(call("tool1", tool)), answer("tool1", "...", tool_use_result=told))
    (found,) = (event for event in steno.events(data) if isinstance(event, ev.ToolResult))
    assert isinstance(found.output, ev.ToolResultDetails)
    return found.output


def test_002_bash() -> None:
    found = _outcome(
        "Bash", {"stdout": "ok\n", "stderr": "", "interrupted": False, "isImage": False}
    )
    assert (bytes(found.stdout), bytes(found.stderr), found.interrupted, found.is_image) == (
        b'"ok\\n"',
        b'""',
        False,
        False,
    )


def test_002_read() -> None:
    file = {
        "filePath": "/path/to/file.txt",
        "content": "words",
        "numLines": 10,
        "startLine": 1,
        "totalLines": 10,
    }
    found = _outcome("Read", {"type": "text", "file": file})
    assert (found.type, bytes(found.file)) == ("text", dump(file))


def test_002_grep() -> None:
    told = {
        "mode": "content",
        "numFiles": 1,
        "filenames": [],
        "content": "file.txt:1:words",
        "numLines": 1,
    }
    found = _outcome("Grep", told)
    assert (found.mode, found.num_files, found.num_lines) == ("content", 1, 1)
    assert (bytes(found.filenames), bytes(found.content)) == (b"[]", b'"file.txt:1:words"')


def test_002_glob() -> None:
    names = ["/path/to/file1.json", "/path/to/file2.json"]
    found = _outcome(
        "Glob", {"filenames": names, "durationMs": 4, "numFiles": 2, "truncated": False}
    )
    assert (bytes(found.filenames), found.num_files) == (dump(names), 2)


def test_002_a_denied_write_is_in_its_result_and_in_the_list() -> None:
    words = "Claude requested permissions to write to /path/file, but you haven't granted it yet."
    begin = [
        session()[0],
        assistant(call("tool1", "Write", file_path="/path/file", content="x")),
        answer("tool1", words, True),
    ]
    end = session()[-1]
    rule = "Edit(file)"
    given = {"file_path": "/path/file", "content": "x"}
    by_result = report(*begin, end)
    by_list = report(begin[0], {**end, "permission_denials": [denied("tool1", "Write", **given)]})
    by_both = report(*begin, {**end, "permission_denials": [denied("tool1", "Write", **given)]})
    assert (
        by_result.denials == by_both.denials == [DeniedCall("Write", "tool1", given, words, rule)]
    )
    assert by_list.denials == [DeniedCall("Write", "tool1", given, None, rule)]
    assert [one.verdict for one in (by_result, by_list, by_both)] == ["permission"] * 3
    assert (by_result.files, by_result.tools[0].ok, by_result.tools[0].denied) == ([], False, True)


# -- 003: a tolerant reader and its failures -----------------------------------------------------


def test_003_init_answer_and_result() -> None:
    found = report(
        {
            "type": "system",
            "subtype": "init",
            "session_id": "abc123",
            "cwd": "/w",
            "apiKeySource": "ANTHROPIC_API_KEY",
        },
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "content": [text("Five parks."), call("toolu_01", "WebSearch", query="parks")],
            },
        },
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "usage": {"input_tokens": 1423, "output_tokens": 512},
        },
    )
    assert (found.verdict, found.ok, found.text, found.result) == (
        "success",
        True,
        "Five parks.",
        None,
    )
    assert (found.session_id, found.cwd, found.api_key_source) == (
        "abc123",
        "/w",
        "ANTHROPIC_API_KEY",
    )
    assert [(tool.name, tool.kind, tool.ok) for tool in found.tools] == [("WebSearch", "web", None)]
    assert (found.tokens.input, found.tokens.output, found.tokens.total) == (1423, 512, 1935)
    assert found.cost == Cost(None, "unknown")


def too_many_requests() -> Report:
    words = "API Error: Request rejected (429). The organization is over its rate limit."
    return report(
        {"type": "system", "subtype": "init", "session_id": "abc123", "cwd": "/w"},
        {
            "type": "assistant",
            "message": {"id": "msg_01", "role": "assistant", "content": [], "stop_reason": None},
        },
        {
            "type": "result",
            "subtype": "error_max_turns",
            "is_error": True,
            "result": words,
            "usage": {"input_tokens": 1423, "output_tokens": 0},
        },
    )


def test_003_a_429_is_a_rate_limit_whatever_the_subtype_says() -> None:
    found = too_many_requests()
    assert (found.verdict, found.error_category, found.ok) == ("rate_limit", "rate_limit", False)
    assert (
        found.error == "API Error: Request rejected (429). The organization is over its rate limit."
    )


def test_003_a_429_still_reports_its_tokens() -> None:
    tokens = too_many_requests().tokens
    assert (tokens.input, tokens.output, tokens.total) == (1423, 0, 1423)


def test_003_a_long_error_is_whole_in_its_event() -> None:
    data = stream({"type": "result", "is_error": True, "result": "x" * 5000})
    (found,) = (event for event in steno.events(data) if isinstance(event, ev.Result))
    assert (found.text, len(steno.read(data).error or "")) == ("x" * 5000, 4096 + 16)


def test_003_text_blocks_are_joined_and_others_are_not_text() -> None:
    blocks = [
        text("One."),
        {"type": "text"},
        {"type": "thinking", "thinking": "Hm."},
        call("toolu_1", "Read"),
        text("Two."),
    ]
    assert report(assistant(*blocks)).text == "One.\n\nTwo."


def test_003_a_message_without_a_list_of_blocks_is_skipped_for_text() -> None:
    lines: list[Json] = [
        {"type": "assistant"},
        {"type": "assistant", "message": {}},
        {"type": "assistant", "message": {"content": 5}},
    ]
    found = report(*lines, assistant(text("Here.")))
    assert (found.text, found.lines.read, found.lines.malformed) == ("Here.", 4, 0)


# -- 004: a watcher of file changes --------------------------------------------------------------

PROJECT = "/workspaces/turbo/apps/cli"
TARGET = f"{PROJECT}/test-file.txt"
OPUS = "claude-opus-4-1-20250805"
EDIT = {"file_path": TARGET, "old_string": "A test file.", "new_string": "# Note\nA test file."}


def old_result(counters: tuple[int, int, int, int], **more: Any) -> Json:
    """A result from before modelUsage; its usage is that of the last request."""
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "usage": usage(*counters),
        **more,
    }


def test_004_a_lone_result_with_a_refusal() -> None:
    end = old_result(
        (8, 192, 17004, 32),
        duration_ms=16049,
        duration_api_ms=15987,
        num_turns=8,
        result="Please let me write to the file.",
        session_id="f18f49de-5b8f-4261-99c4-dbbaa6ae0e24",
        total_cost_usd=0.34641974999999997,
        permission_denials=[denied("toolu_01YY", "Edit", **EDIT)],
    )
    found = report(end)
    assert (found.verdict, found.ok, found.turns, found.cost) == (
        "permission",
        False,
        8,
        Cost(0.34641975, "reported"),
    )
    assert found.tokens == Tokens(8, 192, 17004, 32, 0, 17236)
    assert found.denials == [DeniedCall("Edit", "toolu_01YY", EDIT, None, f"Edit(/{TARGET})")]
    assert found.hint == f"to allow it: --allowedTools 'Edit(/{TARGET})'"


def edited() -> list[Json]:
    read = call("toolu_017H", "Read", file_path=TARGET)
    first = usage(4, 5355, 11292, 2)
    return [
        {
            "type": "system",
            "subtype": "init",
            "cwd": PROJECT,
            "session_id": "e8889acf-5473-49e2-bd81-4896717df7c7",
            "tools": ["Task", "Bash", "Read", "Edit", "MultiEdit", "Write", "NotebookEdit"],
            "model": OPUS,
            "permissionMode": "bypassPermissions",
            "apiKeySource": "none",
        },
        assistant(text("A note goes on top."), message="msg_01KG", model=OPUS, used=first),
        assistant(read, message="msg_01KG", model=OPUS, used=first),
        answer("toolu_017H", "     1→A test file."),
        assistant(
            call("toolu_01Hg", "Edit", **EDIT),
            message="msg_01L4",
            model=OPUS,
            used=usage(6, 212, 16827, 1),
        ),
        user(
            [
                {
                    key: value
                    for key, value in outcome("toolu_01Hg", f"{TARGET} has been updated.").items()
                    if key != "is_error"
                }
            ]
        ),
        old_result(
            (6, 212, 16827, 5),
            duration_ms=18319,
            duration_api_ms=21018,
            num_turns=6,
            result="Done.",
            session_id="e8889acf-5473-49e2-bd81-4896717df7c7",
            total_cost_usd=0.19243785000000002,
            permission_denials=[],
        ),
    ]


def test_004_the_file_changes_with_the_result_and_not_with_the_call() -> None:
    kinds = [(event.line, type(event)) for event in steno.events(stream(*edited()))]
    assert (5, ev.ToolCall) in kinds
    assert [line for line, kind in kinds if kind is ev.FileChanged] == [6]
    assert report(*edited()[:5]).files == []


def test_004_the_whole_run() -> None:
    found = report(*edited())
    assert (found.verdict, found.ok, found.result, found.turns) == ("success", True, "Done.", 6)
    assert (found.api_key_source, found.model, found.cwd) == ("none", OPUS, PROJECT)
    assert found.files == [
        ChangedFile("test-file.txt", TARGET, "modified", True, ["toolu_01Hg"], "tool")
    ]
    assert (found.tokens.total, found.tokens.output) == (33703, 7)
    assert (found.context.used, found.context.limit) == (17045, 200_000)
    assert found.cost == Cost(0.19243785, "reported")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Edit", {"file_path": TARGET}),
        ("Write", {"file_path": TARGET, "content": "x"}),
        ("MultiEdit", {"file_path": TARGET, "edits": []}),
        ("NotebookEdit", {"notebook_path": TARGET, "new_source": "x"}),
    ],
)
def test_004_the_tools_that_change_files(tool: str, given: Json) -> None:
    found = report(edited()[0], assistant(call("toolu_1", tool, **given)), answer("toolu_1"))
    assert [(file.path, file.tools) for file in found.files] == [("test-file.txt", ["toolu_1"])]


@pytest.mark.parametrize("tool", ["Read", "Glob", "Grep", "Bash", "Task"])
def test_004_the_tools_that_do_not(tool: str) -> None:
    found = report(
        edited()[0], assistant(call("toolu_1", tool, file_path=TARGET)), answer("toolu_1")
    )
    assert found.files == []
