"""Codex: special cases, token sums checked with plain JSON, the command line (A2)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

import steno
from steno import event as ev
from steno.agents import AGENTS, LaunchOptions, detect_agent
from steno.agents.base import NEWEST_PROGRAM
from tests.golden import CASES, ROOT, name
from tests.support.claude_lines import Json, dump, folder, plain, stream

CODEX = AGENTS["codex"]
STREAMS = [case for case in CASES if case.parents[1].name == "codex"]
THREAD = "01a1df20-7aaf-7df2-9e26-5db0d24ced10"
COUNTERS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


def lines(path: Path) -> list[Json]:
    """The JSON objects in a file."""
    values = [
        json.loads(line) for line in path.read_text("utf-8").split("\n") if line.startswith("{")
    ]
    return [line for line in values if isinstance(line, dict)]


def item(number: int, kind: str, **more: Any) -> Json:
    return {"type": "item.completed", "item": {"id": f"item_{number}", "type": kind, **more}}


def message(number: int, text: str) -> Json:
    return item(number, "agent_message", text=text)


def command(
    number: int, command: str, code: int = 0, output: str = "", status: str | None = None
) -> Json:
    status = status or ("completed" if code == 0 else "failed")
    return item(
        number,
        "command_execution",
        command=command,
        aggregated_output=output,
        exit_code=code,
        status=status,
    )


START_LINES: tuple[Json, ...] = (
    {"type": "thread.started", "thread_id": THREAD},
    {"type": "turn.started"},
)
USAGE = dict(zip(COUNTERS, (8001, 7000, 0, 51, 10), strict=True))
TURN_COMPLETED: Json = {"type": "turn.completed", "usage": USAGE}


def report(*lines_: Json) -> steno.Report:
    """The report of a stream of these lines, without a rollout."""
    return steno.read(stream(*START_LINES, *lines_))


# -- token sums, checked independently ---------------------------------------------------------


def own_part(case: Path) -> dict[str, int] | None:
    """The usage of a run: the records of the rollout's turn with the thread total of the stream."""
    stdout = lines(case / "stdout")
    if any("msg" in line for line in stdout):
        return sum_of_counts(stdout)
    end = next((line["usage"] for line in stdout if line["type"] == "turn.completed"), None)
    thread = next((line["thread_id"] for line in stdout if line["type"] == "thread.started"), None)
    rollout = [
        line for path in (case / "sessions").rglob(f"*{thread}.jsonl") for line in lines(path)
    ]
    records = [line["payload"] for line in rollout if line["type"] == "token_usage_record"]
    if not records and end is not None:
        return counted_part(rollout, end)
    if end is not None:
        last = next(
            record
            for record in records
            if all(record["thread_token_usage"][key] == end[key] for key in COUNTERS)
        )
        records = [record for record in records if record["turn_id"] == last["turn_id"]]
    return (
        {key: sum(record["usage"][key] for record in records) for key in COUNTERS}
        if records
        else None
    )


def sum_of_counts(stdout: list[Json]) -> dict[str, int]:
    """The usage in a stream up to 0.42, which has that of each request."""
    counts = [line["msg"] for line in stdout if line.get("msg", {}).get("type") == "token_count"]
    parts = [part["info"]["last_token_usage"] if "info" in part else part for part in counts]
    return {key: sum(part.get(key, 0) for part in parts) for key in COUNTERS}


def counted_part(rollout: list[Json], end: dict[str, int]) -> dict[str, int]:
    """The same without records: the thread's total at the end less that before the last prompt."""
    total = before = dict.fromkeys(COUNTERS, 0)
    for line in rollout:
        payload = line["payload"]
        if payload.get("type") == "user_message":
            before = total
        if payload.get("type") == "token_count" and payload["info"] is None:
            total = before = dict.fromkeys(COUNTERS, 0)  # up to 0.58 a process counts from zero
        if payload.get("type") == "token_count" and payload["info"] is not None:
            total = {**dict.fromkeys(COUNTERS, 0), **payload["info"]["total_token_usage"]}
            if all(total[key] == value for key, value in end.items()):
                break
    return {key: total[key] - before[key] for key in COUNTERS}


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_tokens_are_the_raw_records_added_up(case: Path) -> None:
    """A2: input includes cached, output includes reasoning, a thread's sum is not the run's."""
    expected = own_part(case)
    tokens = steno.read(case).tokens
    if expected is None:
        assert tokens.total is None
        return
    input_, cached, written, output, reasoning = (expected[key] for key in COUNTERS)
    assert (tokens.input, tokens.cache_write, tokens.cache_read) == (
        input_ - cached - written,
        written,
        cached,
    )
    assert (tokens.output, tokens.reasoning, tokens.total) == (output, reasoning, input_ + output)


def test_the_parts_of_a_thread_add_up_to_its_sum() -> None:
    """Two runs of one thread: 8,052 and 16,106 of 24,158."""
    first, second = (
        steno.read(ROOT / "codex/0.166.0-gpt-5.5" / case).tokens.total or 0
        for case in ("resume_first", "resume_second")
    )
    usage = lines(ROOT / "codex/0.166.0-gpt-5.5/resume_second/stdout")[-1]["usage"]
    assert (first, second) == (8052, 16106)
    assert first + second == usage["input_tokens"] + usage["output_tokens"] == 24158


def test_without_the_rollout_a_sum_is_an_upper_bound_and_says_so() -> None:
    """The stream does not say whether the thread was new."""
    result = steno.read((ROOT / "codex/0.166.0-gpt-5.5/resume_second/stdout").read_bytes())
    assert (result.tokens.total, result.context.source) == (24158, "upper_bound")
    assert [note for note in result.warnings if note.startswith("tokens are an upper bound")] != []


# -- versions whose rollout marks no turns -----------------------------------------------------

OLDER_VERSIONS = [
    # What the model server sent: input, cache read, output, requests, context of the last request.
    ("0.80.0/edit_and_shell", "success", (5015, 35000, 265), 5, 8005),
    ("0.80.0/patch_rejected", "permission", (2003, 14000, 103), 2, 8002),
    ("0.80.0/resume_first", "success", (2003, 14000, 103), 2, 8002),
    ("0.80.0/resume_second", "success", (1001, 7000, 51), 1, 8001),
    ("0.80.0/resume_third", "success", (2003, 14000, 103), 2, 8002),
    ("0.142.0/question_after_reading", "interactive", (2003, 14000, 103), 2, 8002),
]


@pytest.mark.parametrize(("case", "verdict", "tokens", "requests", "context"), OLDER_VERSIONS)
def test_an_older_version_is_completed_from_its_rollout(
    case: str, verdict: str, tokens: tuple[int, int, int], requests: int, context: int
) -> None:
    result = steno.read(ROOT / "codex" / case)
    assert (result.verdict, result.requests) == (verdict, requests)
    assert (result.tokens.input, result.tokens.cache_read, result.tokens.output) == tokens
    assert (result.context.used, result.context.source) == (context, "measured")
    assert (result.context.limit, result.cost.source) == (258_400, "computed")


def test_a_call_of_an_older_version_counts_once() -> None:
    """Its rollout has no items: calls are matched by their command and files."""
    result = steno.read(ROOT / "codex/0.80.0/edit_and_shell")
    assert [(tool.name, tool.ok) for tool in result.tools] == [
        ("exec_command", True),
        ("apply_patch", True),
        ("apply_patch", True),
        ("exec_command", True),
    ]
    assert [(file.path, file.change) for file in result.files] == [
        ("src/app.py", "modified"),
        ("src/new.py", "created"),
    ]


def test_a_patch_that_only_the_rollout_of_an_older_version_has() -> None:
    result = steno.read(ROOT / "codex/0.80.0/patch_rejected")
    assert [(tool.name, tool.ok, tool.denied) for tool in result.tools] == [
        ("exec_command", True, False),
        ("apply_patch", False, True),
    ]


def test_without_the_rollout_reasoning_of_an_older_version_is_unknown() -> None:
    result = steno.read((ROOT / "codex/0.80.0/resume_first/stdout").read_bytes())
    assert (result.tokens.output, result.tokens.reasoning) == (103, None)


def rollout_of(case: str) -> list[Json]:
    return [line for path in (ROOT / "codex" / case).rglob("*.jsonl") for line in lines(path)]


def read_with_rollout(tmp_path: Path, stdout: bytes, rollout: list[Json]) -> steno.Report:
    """The report of a stream with the given rollout."""
    case = folder(tmp_path / "run", stdout, 1)
    (case / "sessions").mkdir()
    thread = rollout[0]["payload"]["id"]
    (case / "sessions" / f"rollout-x-{thread}.jsonl").write_bytes(stream(*rollout))
    return steno.read(case)


@pytest.mark.parametrize(
    ("texts", "requests"), [(["Third."], None), (["Third.", "Third done."], 2), ([], 0)]
)
def test_a_failed_turn_of_an_older_version_is_found_by_its_texts(
    tmp_path: Path, texts: list[str], requests: int | None
) -> None:
    """Without a total, another run's turn must not be taken for this one."""
    rollout = rollout_of("0.80.0/resume_third")
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected"}}
    start = {"type": "thread.started", "thread_id": rollout[0]["payload"]["id"]}
    messages = [message(number, text) for number, text in enumerate(texts)]
    result = read_with_rollout(tmp_path, stream(start, *messages, failed), rollout)
    assert (result.requests, result.verdict != "success") == (requests, True)


def test_the_total_of_an_earlier_turn_is_no_request(tmp_path: Path) -> None:
    """A recording keeps the first line of a rollout and those of its own run."""
    rollout = rollout_of("0.80.0/resume_third")
    own = [line for line in rollout[1:] if line["timestamp"] >= "2026-11-16T07:40:52"]
    stdout = (ROOT / "codex/0.80.0/resume_third/stdout").read_bytes()
    result = read_with_rollout(tmp_path, stdout, [rollout[0], *own])
    assert (result.requests, result.tokens.total) == (2, 16106)


def test_a_failed_turn_whose_end_does_not_say_why(tmp_path: Path) -> None:
    """Seen in 0.115: task_complete without an error, an answer and a duration."""
    rollout = rollout_of("0.142.0/question_after_reading")
    end = rollout[-1]["payload"]
    rollout[-1]["payload"] = {**end, "last_agent_message": None, "duration_ms": None}
    failed = {"type": "turn.failed", "error": {"message": "unexpected status 401 Unauthorized"}}
    start = {"type": "thread.started", "thread_id": rollout[0]["payload"]["id"]}
    said = message(1, "I see two ways, A and B. Which one should I take?")
    result = read_with_rollout(tmp_path, stream(start, said, failed), rollout)
    assert (result.verdict, result.requests, result.tokens.total) == ("auth", 2, 16106)
    assert result.duration_ms == 176
    other = read_with_rollout(tmp_path / "other", stream(start, message(1, "x"), failed), rollout)
    assert (other.verdict, other.requests) == ("auth", None)


def test_the_files_of_a_rollout_without_items() -> None:
    """The output of an applied patch names them."""
    rollout = next((ROOT / "codex/0.80.0/edit_and_shell").rglob("rollout-*.jsonl"))
    assert [(file.path, file.change) for file in steno.read(rollout).files] == [
        ("src/app.py", "modified"),
        ("src/new.py", "created"),
    ]


# -- special cases -----------------------------------------------------------------------------


def test_errors_are_not_failures() -> None:
    """Only turn.completed and turn.failed end a turn."""
    result = report(
        item(0, "error", message="Model metadata not found."),
        {
            "type": "error",
            "message": "Reconnecting... 1/5 (unexpected status 503 Service Unavailable)",
        },
        message(1, "Done."),
        TURN_COMPLETED,
    )
    assert (result.verdict, result.text, result.error) == ("success", "Done.", None)
    assert [(retry.attempt, retry.status) for retry in result.retries] == [(1, 503)]


def test_what_a_repeated_request_says_again_counts_once() -> None:
    """After a reconnect the same text is printed again."""
    again = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"}
    assert (
        report(
            message(0, "Half."), again, message(1, "Half."), message(2, "Whole."), TURN_COMPLETED
        ).text
        == "Half.\nWhole."
    )


def test_the_same_words_in_two_requests_count_twice() -> None:
    assert (
        report(message(0, "Next."), command(1, "ls"), message(2, "Next."), TURN_COMPLETED).text
        == "Next.\nNext."
    )


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ("unexpected status 401 Unauthorized: Incorrect API key provided", "auth"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit"),
        ("You’ve hit your usage limit. Try again later.", "rate_limit"),
        ("Quota exceeded. Check your plan and billing details.", "billing"),
        ("Codex ran out of room in the model's context window.", "context_full"),
        ('{"error": {"message": "bad", "type": "invalid_request_error"}}', "invalid_request"),
        (
            '{"error": {"message": "This model\'s maximum context length is 128000 tokens.", '
            '"type": "invalid_request_error"}}',
            "context_full",
        ),
        (
            "stream disconnected before completion: stream closed before response.completed",
            "network",
        ),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "api"),
        ("Missing environment variable: `OPENAI_API_KEY`.", "auth"),
        ("The model `gpt-x` does not exist or you do not have access to it.", "invalid_request"),
        ("Incomplete response returned, reason: max_output_tokens", "no_result"),
        (
            "stream disconnected before completion: "
            "Incomplete response returned, reason: content_filter",
            "refused",
        ),
    ],
)
def test_a_failed_turn_by_its_message(message: str, verdict: str) -> None:
    """Without a rollout, there is only the text (V3)."""
    result = report(
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    )
    assert (result.verdict, result.error, result.ok) == (verdict, message, False)


def test_a_turn_without_an_end_was_interrupted(tmp_path: Path) -> None:
    """A2: exit code 1 and no message."""
    started = {
        "type": "item.started",
        "item": {"id": "item_1", "type": "command_execution", "command": "sleep 9", "status": "x"},
    }
    case_folder = folder(
        tmp_path / "run",
        stream(*START_LINES, message(0, "Wait."), started),
        1,
        b"Reading prompt from stdin...\n",
    )
    result = steno.read(case_folder)
    assert (result.verdict, result.complete, [tool.ok for tool in result.tools]) == (
        "interrupted",
        False,
        [None],
    )


def test_a_refusal_on_stderr_alone_is_seen(tmp_path: Path) -> None:
    """Stream and exit code say success."""
    message_ = (
        "error=patch rejected: writing is blocked by read-only sandbox; "
        "rejected by user approval settings"
    )
    errors = f"2026-11-15T12:13:34.340790Z ERROR codex_core::tools::router: {message_}\n".encode()
    result = steno.read(
        folder(
            tmp_path / "run",
            stream(*START_LINES, message(0, "Patched."), TURN_COMPLETED),
            0,
            errors,
        )
    )
    assert (result.verdict, result.ok) == ("permission", False)
    assert [(tool.name, tool.ok, tool.denied) for tool in result.tools] == [
        ("apply_patch", False, True)
    ]
    assert result.hint == "to allow it: --config sandbox_mode=workspace-write"


def test_a_declined_command_is_a_refusal() -> None:
    result = report(command(0, "rm -rf /", 1, "", "declined"), message(1, "No."), TURN_COMPLETED)
    assert (result.verdict, [denial.id for denial in result.denials]) == ("permission", ["item_0"])


def test_a_file_counts_when_the_patch_was_applied() -> None:
    """W2: not when it failed."""
    change = [{"path": "/p/a.py", "kind": "add"}]
    good = item(0, "file_change", changes=change, status="completed")
    bad = item(1, "file_change", changes=change, status="failed")
    assert [(file.path, file.change) for file in report(good, TURN_COMPLETED).files] == [
        ("/p/a.py", "created")
    ]
    assert report(bad, message(2, "x"), TURN_COMPLETED).files == []


def test_mcp_web_and_plan() -> None:
    """Every known kind of tool item."""
    result = report(
        item(
            0,
            "mcp_tool_call",
            server="db",
            tool="ask",
            arguments={"q": 1},
            result={"content": []},
            status="completed",
        ),
        item(
            1,
            "mcp_tool_call",
            server="db",
            tool="ask",
            arguments={},
            error={"message": "no"},
            status="failed",
        ),
        item(2, "web_search", query="x"),
        item(3, "todo_list", items=[{"text": "a", "completed": True}]),
        message(4, "ok"),
        TURN_COMPLETED,
    )
    assert [(tool.name, tool.kind, tool.ok) for tool in result.tools] == [
        ("mcp__db__ask", "mcp", True),
        ("mcp__db__ask", "mcp", False),
        ("web_search", "web", True),
        ("update_plan", "todo", True),
    ]


def test_a_rollout_of_an_older_version() -> None:
    """Before usage records, token_count was the line of a request, and could be repeated."""

    def rollout_line(kind: str, **payload: Any) -> Json:
        return {"timestamp": "2025-11-01T10:00:00.000Z", "type": kind, "payload": payload}

    def count(total: int, last: int) -> Json:
        usage = {
            "input_tokens": last,
            "cached_input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": last + 5,
        }
        info = {
            "total_token_usage": {"total_tokens": total},
            "last_token_usage": usage,
            "model_context_window": 272_000,
        }
        return rollout_line("event_msg", type="token_count", info=info)

    result = steno.read(
        stream(
            rollout_line("session_meta", id=THREAD, cwd="/p", cli_version="0.46.0"),
            rollout_line(
                "turn_context", cwd="/p", model="gpt-5-codex", sandbox_policy={"mode": "read-only"}
            ),
            rollout_line("event_msg", type="user_message", message="do"),
            rollout_line(
                "response_item",
                type="function_call",
                name="shell",
                arguments='{"command":["touch","x"]}',
                call_id="c1",
            ),
            rollout_line(
                "response_item",
                type="function_call_output",
                call_id="c1",
                output='{"output":"Read-only file system","metadata":{"exit_code":1}}',
            ),
            count(105, 100),
            count(105, 100),
            rollout_line("event_msg", type="agent_message", message="No."),
            count(310, 200),
        )
    )
    assert (result.agent, result.agent_version, result.model, result.cwd) == (
        "codex",
        "0.46.0",
        "gpt-5-codex",
        "/p",
    )
    assert (
        result.requests,
        result.tokens.input,
        result.tokens.cache_read,
        result.tokens.output,
    ) == (
        2,
        280,
        20,
        10,
    )
    assert (result.context.used, result.context.limit, result.text) == (200, 272_000, "No.")
    assert (result.verdict, [denial.tool for denial in result.denials]) == ("permission", ["shell"])


# -- unknown lines and wrong types -------------------------------------------------------------

UNKNOWN_LINES: tuple[Json, ...] = (
    {"type": "turn.hologram", "x": [1]},
    {"type": "item.completed", "item": {"id": "h", "type": "hologram"}},
    {"type": "item.frozen"},
    {"type": "thread.moved", "to": "mars"},
)


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_events_of_unknown_kinds_change_nothing_but_their_count(case: Path, tmp_path: Path) -> None:
    """I4: at least one line in twenty is of an unknown kind."""
    rng = random.Random(6)
    lines_ = (case / "stdout").read_bytes().splitlines(keepends=True)
    added = max(1, len(lines_) // 19) if lines_ and lines_[0][:1] == b"{" else 0
    for _ in range(added):
        lines_.insert(rng.randint(1, len(lines_)), dump(rng.choice(UNKNOWN_LINES)) + b"\n")
    errors = (case / "stderr").read_bytes() if (case / "stderr").exists() else None
    case_folder = folder(
        tmp_path / "run", b"".join(lines_), int((case / "exit_code").read_text()), errors
    )
    if (case / "sessions").exists():
        (case_folder / "sessions").symlink_to(case / "sessions")
    actual, expected = plain(steno.read(case_folder)), plain(steno.read(case))
    assert actual["lines"].pop("unknown") == added
    assert [note for note in actual["warnings"] if "kinds this version does not know" in note] == (
        [f"{added} events of kinds this version does not know"] if added else []
    )
    for report_ in (actual, expected):
        report_["lines"] = None
        report_["evidence"] = None
        report_["warnings"] = [
            note for note in report_["warnings"] if "kinds this version" not in note
        ]
    assert actual == expected


def test_odd_types_cost_only_their_field() -> None:
    """I6: a field of the wrong type is absent; nothing raises."""
    odd_lines: list[Json] = [
        {"type": "item.completed", "item": {"id": 7, "type": "agent_message", "text": ["x"]}},
        {
            "type": "item.completed",
            "item": {
                "id": "i",
                "type": "command_execution",
                "command": {},
                "exit_code": "one",
                "status": 1,
            },
        },
        {
            "type": "item.completed",
            "item": {"id": "j", "type": "file_change", "changes": "none", "status": "completed"},
        },
        {"type": "item.completed", "item": None},
        {"type": "error", "message": 5},
        {"type": "turn.completed", "usage": {"input_tokens": "many", "output_tokens": 3}},
        {"timestamp": "x", "type": "event_msg", "payload": {"type": "token_count", "info": 5}},
        {
            "timestamp": "2026-01-01T00:00:00Z",
            "type": "response_item",
            "payload": {"type": "function_call", "arguments": 5},
        },
        {"type": None, "payload": []},
    ]
    result = report(*odd_lines)
    assert (result.agent, result.tokens.input, result.tokens.output) == ("codex", None, 3)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name == "codex-0.166.0"], ids=name
)
def test_a_rollout_in_two_parts_says_the_same(case: Path) -> None:
    """L3: a file that grew is read from where it ended; the usage scan agrees."""
    (path,) = case.glob("*.jsonl")
    lines_ = path.read_bytes().splitlines()
    whole = CODEX.reader()
    expected = [
        encode(event) for number, line in enumerate(lines_, 1) for event in whole.read(line, number)
    ]
    for cut in range(len(lines_)):
        first, second = CODEX.reader(), CODEX.reader()
        actual = [
            encode(event)
            for number, line in enumerate(lines_[:cut], 1)
            for event in first.read(line, number)
        ]
        second.restore(first.state())
        actual += [
            encode(event)
            for number, line in enumerate(lines_[cut:], cut + 1)
            for event in second.read(line, number)
        ]
        assert actual == expected
    usages = [
        encode(event)
        for event in CODEX.transcripts.scan_usage(lines_)
        if isinstance(event, ev.Usage)
    ]
    assert usages == [line for line in expected if b'"event":"usage"' in line]
    assert all(CODEX.transcripts.is_line(line) and detect_agent(line) is CODEX for line in lines_)


def test_the_rollout_is_found_where_codex_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream in a file is completed from the rollout below CODEX_HOME."""
    case = ROOT / "codex/0.166.0-gpt-5.5/resume_second"
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    (tmp_path / "sessions").symlink_to(case / "sessions")
    (tmp_path / "run.jsonl").write_bytes((case / "stdout").read_bytes())
    result = steno.read(tmp_path / "run.jsonl")
    assert (result.tokens.total, result.model, result.context.used) == (16106, "gpt-5.5", 8002)
    assert [
        event for event in steno.events(tmp_path / "run.jsonl") if isinstance(event, ev.Usage)
    ] != []


# -- command line ------------------------------------------------------------------------------

BARE = ("codex", "exec", "--json", "--skip-git-repo-check")


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        (LaunchOptions(prompt="do"), (*BARE, "-")),
        (LaunchOptions(prompt="do", resume=THREAD), (*BARE, "resume", THREAD, "-")),
        (LaunchOptions(prompt="do", resume=THREAD, fork=True), (*BARE, "fork", THREAD, "-")),
        (LaunchOptions(prompt="do", continue_=True), (*BARE, "resume", "--last", "-")),
        (
            LaunchOptions(prompt="do", model="gpt-5.5", add_dirs=("/a", "/b")),
            (*BARE, "--model", "gpt-5.5", "--add-dir", "/a", "--add-dir", "/b", "-"),
        ),
        (
            LaunchOptions(prompt="do", permission_mode="plan"),
            (*BARE, "--sandbox", "read-only", "-"),
        ),
        (
            LaunchOptions(prompt="do", permission_mode="workspace-write"),
            (*BARE, "--sandbox", "workspace-write", "-"),
        ),
        (
            LaunchOptions(prompt="do", permission_mode="bypassPermissions"),
            (*BARE, "--dangerously-bypass-approvals-and-sandbox", "-"),
        ),
        (
            LaunchOptions(prompt="do", system_prompt='Say "hi"'),
            (*BARE, "--config", 'developer_instructions="Say \\"hi\\""', "-"),
        ),
        (LaunchOptions(prompt="do", extra=("-c", "a=1")), (*BARE, "-c", "a=1", "-")),
    ],
)
def test_the_command_line(options: LaunchOptions, argv: tuple[str, ...]) -> None:
    """R1: the prompt is passed on stdin."""
    launch = CODEX.launch.build_command(options, "codex", NEWEST_PROGRAM)
    assert (launch.argv, launch.stdin, launch.stdout) == (argv, b"do", "pipe")


def test_unsupported_options_are_launch_options() -> None:
    assert set(CODEX.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)
