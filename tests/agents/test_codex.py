"""Codex: its traps, its sums checked by plain JSON, its command line (A2)."""

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
    """The JSON lines of a file, as plain values."""
    found = [
        json.loads(line) for line in path.read_text("utf-8").split("\n") if line.startswith("{")
    ]
    return [line for line in found if isinstance(line, dict)]


def item(number: int, kind: str, **more: Any) -> Json:
    return {"type": "item.completed", "item": {"id": f"item_{number}", "type": kind, **more}}


def said(number: int, text: str) -> Json:
    return item(number, "agent_message", text=text)


def ran(
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


BEGUN: tuple[Json, ...] = (
    {"type": "thread.started", "thread_id": THREAD},
    {"type": "turn.started"},
)
USAGE = dict(zip(COUNTERS, (8001, 7000, 0, 51, 10), strict=True))
ENDED: Json = {"type": "turn.completed", "usage": USAGE}


def report(*given: Json) -> steno.Report:
    """The report of a stream of these lines, without a rollout."""
    return steno.read(stream(*BEGUN, *given))


# -- sums, independently ------------------------------------------------------------------------------------


def own_part(case: Path) -> dict[str, int] | None:
    """What a run used, from the raw records of its rollout: of the turn with which the thread's sum is the stream's."""
    told = lines(case / "stdout")
    end = next((line["usage"] for line in told if line["type"] == "turn.completed"), None)
    thread = next((line["thread_id"] for line in told if line["type"] == "thread.started"), None)
    records = [
        line["payload"]
        for path in (case / "sessions").rglob(f"*{thread}.jsonl")
        for line in lines(path)
        if line["type"] == "token_usage_record"
    ]
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


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_tokens_are_the_raw_records_added_up(case: Path) -> None:
    """A2: cached is inside input, reasoning inside output, and a resumed thread's sum is not the run's."""
    wanted, tokens = own_part(case), steno.read(case).tokens
    if wanted is None:
        assert tokens.total is None
        return
    new, cached, written, output, reasoning = (wanted[key] for key in COUNTERS)
    assert (tokens.input, tokens.cache_write, tokens.cache_read) == (
        new - cached - written,
        written,
        cached,
    )
    assert (tokens.output, tokens.reasoning, tokens.total) == (output, reasoning, new + output)


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
    """Nothing in the stream tells whether the thread was new."""
    found = steno.read((ROOT / "codex/0.166.0-gpt-5.5/resume_second/stdout").read_bytes())
    assert (found.tokens.total, found.context.source) == (24158, "upper_bound")
    assert [note for note in found.warnings if note.startswith("tokens are an upper bound")] != []


# -- traps ----------------------------------------------------------------------------------------------------


def test_errors_are_not_failures() -> None:
    """Only turn.completed and turn.failed end a turn."""
    found = report(
        item(0, "error", message="Model metadata not found."),
        {
            "type": "error",
            "message": "Reconnecting... 1/5 (unexpected status 503 Service Unavailable)",
        },
        said(1, "Done."),
        ENDED,
    )
    assert (found.verdict, found.text, found.error) == ("success", "Done.", None)
    assert [(retry.attempt, retry.status) for retry in found.retries] == [(1, 503)]


def test_what_a_repeated_request_says_again_counts_once() -> None:
    """After a reconnect the same words come again."""
    again = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"}
    assert (
        report(said(0, "Half."), again, said(1, "Half."), said(2, "Whole."), ENDED).text
        == "Half.\nWhole."
    )


def test_the_same_words_in_two_requests_count_twice() -> None:
    assert report(said(0, "Next."), ran(1, "ls"), said(2, "Next."), ENDED).text == "Next.\nNext."


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ("unexpected status 401 Unauthorized: Incorrect API key provided", "auth"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit"),
        ("You’ve hit your usage limit. Try again later.", "rate_limit"),
        ("Quota exceeded. Check your plan and billing details.", "rate_limit"),
        ("Codex ran out of room in the model's context window.", "context_full"),
        ('{"error": {"message": "bad", "type": "invalid_request_error"}}', "invalid_request"),
        (
            "stream disconnected before completion: stream closed before response.completed",
            "network",
        ),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "api"),
        ("Missing environment variable: `OPENAI_API_KEY`.", "auth"),
    ],
)
def test_a_failed_turn_by_its_words(message: str, verdict: str) -> None:
    """Without a rollout, words are all there is (V3)."""
    found = report(
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    )
    assert (found.verdict, found.error, found.ok) == (verdict, message, False)


def test_a_turn_without_an_end_was_interrupted(tmp_path: Path) -> None:
    """A2: exit code 1 and not a word."""
    started = {
        "type": "item.started",
        "item": {"id": "item_1", "type": "command_execution", "command": "sleep 9", "status": "x"},
    }
    where = folder(
        tmp_path / "run",
        stream(*BEGUN, said(0, "Wait."), started),
        1,
        b"Reading prompt from stdin...\n",
    )
    found = steno.read(where)
    assert (found.verdict, found.complete, [tool.ok for tool in found.tools]) == (
        "interrupted",
        False,
        [None],
    )


def test_a_refusal_on_stderr_alone_is_seen(tmp_path: Path) -> None:
    """A bad run must not look good: the stream and the exit code say success."""
    told = "error=patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"
    errors = f"2026-11-15T12:13:34.340790Z ERROR codex_core::tools::router: {told}\n".encode()
    found = steno.read(
        folder(tmp_path / "run", stream(*BEGUN, said(0, "Patched."), ENDED), 0, errors)
    )
    assert (found.verdict, found.ok) == ("permission", False)
    assert [(tool.name, tool.ok, tool.denied) for tool in found.tools] == [
        ("apply_patch", False, True)
    ]
    assert found.hint == "to allow it: --config sandbox_mode=workspace-write"


def test_a_declined_command_is_a_refusal() -> None:
    found = report(ran(0, "rm -rf /", 1, "", "declined"), said(1, "No."), ENDED)
    assert (found.verdict, [denial.id for denial in found.denials]) == ("permission", ["item_0"])


def test_a_file_counts_when_the_patch_was_applied() -> None:
    """W2: not when it failed."""
    change = [{"path": "/p/a.py", "kind": "add"}]
    good, bad = (
        item(0, "file_change", changes=change, status="completed"),
        item(1, "file_change", changes=change, status="failed"),
    )
    assert [(file.path, file.change) for file in report(good, ENDED).files] == [
        ("/p/a.py", "created")
    ]
    assert report(bad, said(2, "x"), ENDED).files == []


def test_mcp_web_and_plan() -> None:
    """Every kind of item that the program is known to print."""
    found = report(
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
        said(4, "ok"),
        ENDED,
    )
    assert [(tool.name, tool.kind, tool.ok) for tool in found.tools] == [
        ("mcp__db__ask", "mcp", True),
        ("mcp__db__ask", "mcp", False),
        ("web_search", "web", True),
        ("update_plan", "todo", True),
    ]


def test_a_rollout_of_an_older_version() -> None:
    """Before there were records, token_count told each request, and could be repeated."""

    def kept(kind: str, **payload: Any) -> Json:
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
        return kept("event_msg", type="token_count", info=info)

    found = steno.read(
        stream(
            kept("session_meta", id=THREAD, cwd="/p", cli_version="0.46.0"),
            kept(
                "turn_context", cwd="/p", model="gpt-5-codex", sandbox_policy={"mode": "read-only"}
            ),
            kept("event_msg", type="user_message", message="do"),
            kept(
                "response_item",
                type="function_call",
                name="shell",
                arguments='{"command":["touch","x"]}',
                call_id="c1",
            ),
            kept(
                "response_item",
                type="function_call_output",
                call_id="c1",
                output='{"output":"Read-only file system","metadata":{"exit_code":1}}',
            ),
            count(105, 100),
            count(105, 100),
            kept("event_msg", type="agent_message", message="No."),
            count(310, 200),
        )
    )
    assert (found.agent, found.agent_version, found.model, found.cwd) == (
        "codex",
        "0.46.0",
        "gpt-5-codex",
        "/p",
    )
    assert (found.requests, found.tokens.input, found.tokens.cache_read, found.tokens.output) == (
        2,
        280,
        20,
        10,
    )
    assert (found.context.used, found.context.limit, found.text) == (200, 272_000, "No.")
    assert (found.verdict, [denial.tool for denial in found.denials]) == ("permission", ["shell"])


# -- nothing lost, nothing raises -------------------------------------------------------------------------------

STRANGE: tuple[Json, ...] = (
    {"type": "turn.hologram", "x": [1]},
    {"type": "item.completed", "item": {"id": "h", "type": "hologram"}},
    {"type": "item.frozen"},
    {"type": "thread.moved", "to": "mars"},
)


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_events_of_unknown_kinds_change_nothing_but_their_count(case: Path, tmp_path: Path) -> None:
    """I4: at least one in twenty of a kind that nobody has seen."""
    dice, told = random.Random(6), (case / "stdout").read_bytes().splitlines(keepends=True)
    added = max(1, len(told) // 19) if told and told[0][:1] == b"{" else 0
    for _ in range(added):
        told.insert(dice.randint(1, len(told)), dump(dice.choice(STRANGE)) + b"\n")
    errors = (case / "stderr").read_bytes() if (case / "stderr").exists() else None
    where = folder(tmp_path / "run", b"".join(told), int((case / "exit_code").read_text()), errors)
    if (case / "sessions").exists():
        (where / "sessions").symlink_to(case / "sessions")
    got, wanted = plain(steno.read(where)), plain(steno.read(case))
    assert got["lines"].pop("unknown") == added
    assert [note for note in got["warnings"] if "kinds this version does not know" in note] == (
        [f"{added} events of kinds this version does not know"] if added else []
    )
    for found in (got, wanted):
        found["lines"] = found["evidence"] = None
        found["warnings"] = [note for note in found["warnings"] if "kinds this version" not in note]
        wanted["lines"] = None
    assert got == wanted


def test_odd_types_cost_only_their_field() -> None:
    """I6: a field of the wrong type is absent; nothing raises."""
    odd: list[Json] = [
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
    found = report(*odd)
    assert (found.agent, found.tokens.input, found.tokens.output) == ("codex", None, 3)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parent.name == "codex-0.166.0"], ids=name
)
def test_a_rollout_in_two_parts_says_the_same(case: Path) -> None:
    """L3: what grew is read on from where it ended; the short way to the sums agrees."""
    (path,) = case.glob("*.jsonl")
    told = path.read_bytes().splitlines()
    whole = CODEX.reader()
    wanted = [
        encode(event) for number, line in enumerate(told, 1) for event in whole.read(line, number)
    ]
    for cut in range(len(told)):
        first, second = CODEX.reader(), CODEX.reader()
        got = [
            encode(event)
            for number, line in enumerate(told[:cut], 1)
            for event in first.read(line, number)
        ]
        second.restore(first.state())
        got += [
            encode(event)
            for number, line in enumerate(told[cut:], cut + 1)
            for event in second.read(line, number)
        ]
        assert got == wanted
    usages = [
        encode(event) for event in CODEX.transcripts.scan_usage(told) if isinstance(event, ev.Usage)
    ]
    assert usages == [line for line in wanted if b'"event":"usage"' in line]
    assert all(CODEX.transcripts.is_line(line) and detect_agent(line) is CODEX for line in told)


def test_the_rollout_is_found_where_codex_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream in a file: its thread's rollout below CODEX_HOME tells the rest."""
    case = ROOT / "codex/0.166.0-gpt-5.5/resume_second"
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    (tmp_path / "sessions").symlink_to(case / "sessions")
    (tmp_path / "run.jsonl").write_bytes((case / "stdout").read_bytes())
    found = steno.read(tmp_path / "run.jsonl")
    assert (found.tokens.total, found.model, found.context.used) == (16106, "gpt-5.5", 8002)
    assert [
        event for event in steno.events(tmp_path / "run.jsonl") if isinstance(event, ev.Usage)
    ] != []


# -- how it is started --------------------------------------------------------------------------------------------

BARE = ("codex", "exec", "--json", "--skip-git-repo-check")


@pytest.mark.parametrize(
    ("ask", "argv"),
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
def test_the_command_line(ask: LaunchOptions, argv: tuple[str, ...]) -> None:
    """R1: the prompt goes by stdin."""
    begun = CODEX.launch.build_command(ask, "codex", None)
    assert (begun.argv, begun.stdin, begun.stdout) == (argv, b"do", "pipe")


def test_what_it_has_no_words_for_is_a_field_of_an_ask() -> None:
    assert set(CODEX.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)
