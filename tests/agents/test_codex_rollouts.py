"""Rollouts of Codex from 2025 to now: outputs of calls, token counts, forks, older forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import steno
from steno import event as ev
from steno.agents import AGENTS, detect_agent
from steno.agents.codex.outputs import parse_output
from tests.golden import ROOT
from tests.support.claude_lines import Json, dump, stream

CODEX = AGENTS["codex"]
THREAD = "01a1f092-0504-7942-a8e5-d56565c1d1ac"
PARENT = "01a1f091-ff0f-7932-9585-ed014da64fc7"


def line(kind: str, at: float = 0.0, **payload: Any) -> Json:
    """A line of a rollout, `at` seconds after the start."""
    minutes, seconds = divmod(600 + at, 60)
    time = f"2025-11-01T10:{int(minutes):02}:{seconds:06.3f}Z"
    return {"timestamp": time, "type": kind, "payload": payload}


def meta(version: str | None = "0.40.0", thread: str = THREAD, at: float = 0.0) -> Json:
    return line("session_meta", at, id=thread, cwd="/p", cli_version=version)


def prompt(text: str, at: float = 0.0) -> Json:
    return line("event_msg", at, type="user_message", message=text)


def context(at: float = 0.0, **more: Any) -> Json:
    return line("turn_context", at, cwd="/p", model="gpt-5-codex", **more)


def answer(text: str, at: float = 0.0) -> Json:
    return line("event_msg", at, type="agent_message", message=text)


def call(id_: str, at: float = 0.0, name: str = "shell", arguments: str = "{}") -> Json:
    return line(
        "response_item", at, type="function_call", name=name, arguments=arguments, call_id=id_
    )


def output(id_: str, value: Any, at: float = 0.0) -> Json:
    return line("response_item", at, type="function_call_output", call_id=id_, output=value)


def count(total: int | None, last: int = 0, at: float = 0.0) -> Json:
    """A token count: a request of `last` tokens, with 7 of output and 11 from the cache."""
    if total is None:
        return line("event_msg", at, type="token_count", info=None)

    def usage(tokens: int) -> Json:
        return {
            "input_tokens": tokens - 7,
            "cached_input_tokens": 11,
            "output_tokens": 7,
            "reasoning_output_tokens": 3,
            "total_tokens": tokens,
        }

    info = {"total_token_usage": usage(total), "last_token_usage": usage(last)}
    return line("event_msg", at, type="token_count", info=info)


def read(*lines: Json) -> steno.Report:
    return steno.read(stream(*lines))


def events(*lines: Json) -> list[ev.Event]:
    return list(steno.events(stream(*lines)))


# -- outputs of calls --------------------------------------------------------------------------

TIMED = "Exit code: 0\nWall time: 1 seconds\nOutput:\n"
OLDER = '{"output":"x","metadata":{"exit_code":7,"duration_seconds":1}}'
HEADER = "Chunk ID: a23623\nWall time: 1.2500 seconds\nProcess exited with code 3\n"
CODE_MODE = "Script {}\nWall time 0.7 seconds\nOutput:\n"
UNCHANGED = [
    '{"output": "x"}',  # of a tool that answers in JSON
    '{"output": "x", "metadata": {"page": 1}}',
    '{"output": "x", "metadata": {"exit_code": 1}, "more": 1}',
    '{"agent_id": "1"}',
    "{not json",
    "Exit code: 1 is what it said",
    "Exit code: 1\nand then",
    "Output:\nalone",
    "Wall time: 1 seconds\nof my life",
    "",
]
OUTPUTS = [
    # What the rollout has, what is shown, exit code, milliseconds.
    (json.dumps({"output": "a\n", "metadata": {"exit_code": 0, "duration_seconds": 1.1}}), "a\n", 0,
     1100),
    (json.dumps({"output": "", "metadata": {"exit_code": -1, "duration_seconds": 0}}), "", -1, 0),
    ({"output": "a", "metadata": {"exit_code": 1, "duration_seconds": 2}}, "a", 1, 2000),
    ({"content": "Exit code: 2\nWall time: 3 seconds\nOutput:\na", "success": False}, "a", 2, 3000),
    ("Exit code: 0\nWall time: 1.1 seconds\nOutput:\nhello\n", "hello\n", 0, 1100),
    ("Exit code: 0\nWall time: 0 seconds\nTotal output lines: 9\nOutput:\n1\n", "1\n", 0, 0),
    ("Exit code: 0\nWall time: 1 seconds\nOutput:", "", 0, 1000),
    (f"{HEADER}Original token count: 13\nOutput:\nno\n", "no\n", 3, 1250),
    (f"Command: /bin/bash -lc 'a\nb'\n{HEADER}Output:\nno", "no", 3, 1250),
    # The command printed what looks like a header, or like the older form.
    (f"{TIMED}Exit code: 5\nOutput:\nx", "Exit code: 5\nOutput:\nx", 0, 1000),
    (f"{TIMED}{OLDER}", OLDER, 0, 1000),
    ("Wall time: 0.1234 seconds\nOutput:\n[{}]", "[{}]", None, 123),  # an MCP tool
    ("Wall time: 4.8 seconds\naborted by user", "aborted by user", None, 4800),
    ("aborted by user after 2.5s", "aborted by user after 2.5s", None, 2500),
    ([{"type": "input_text", "text": CODE_MODE.format("completed")},
      {"type": "input_text", "text": "built"}], "built", None, 700),
    ([{"type": "input_text", "text": CODE_MODE.format("completed") + "built"}], "built", None, 700),
    ([{"type": "input_text", "text": CODE_MODE.format("completed")},
      {"type": "input_text", "text": json.dumps(
          {"chunk_id": "c", "wall_time_seconds": 0.25, "exit_code": 4, "output": "out"})}],
     "out", 4, 250),
    ([{"type": "input_text", "text": CODE_MODE.format("running with cell ID 28")}], "", None, 700),
    *((text, text, None, None) for text in UNCHANGED),
]  # fmt: skip


@pytest.mark.parametrize(("given", "shown", "code", "duration"), OUTPUTS)
def test_the_output_of_a_call_in_every_form(
    given: Any, shown: str, code: int | None, duration: int | None
) -> None:
    parsed = parse_output(Raw(json.dumps(given).encode()))
    assert (parsed.text, parsed.exit_code, parsed.duration_ms) == (shown, code, duration)


DEEP: Any = {"content": "x"}
for _ in range(400):
    DEEP = {"content": DEEP}


@pytest.mark.parametrize("value", [None, 5, [], {}, [[]], DEEP, ["x", 1], [{"text": 5}]])
def test_an_output_of_another_shape_does_not_raise(value: Any) -> None:
    parsed = parse_output(Raw(json.dumps(value).encode()))
    assert (parsed.exit_code, parsed.duration_ms) == (None, None)


def test_images_in_an_output_are_kept() -> None:
    parts = [
        {"type": "input_text", "text": CODE_MODE.format("completed")},
        {"type": "input_text", "text": "two"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
    ]
    parsed = parse_output(Raw(json.dumps(parts).encode()))
    assert parsed.text == "two\n[image/png, 1 byte]"
    assert json.loads(bytes(parsed.content)) == parts[1:]


@pytest.mark.parametrize(
    ("name", "value", "ok"),
    [
        ("exec", [{"type": "input_text", "text": CODE_MODE.format("failed")}], False),
        ("exec", [{"type": "input_text", "text": CODE_MODE.format("terminated")}], False),
        ("exec", [{"type": "input_text", "text": CODE_MODE.format("completed")}], True),
        ("exec_command", "Wall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\n",
         True),
        ("exec_command", "exec_command failed for `x`: CreateProcess { message: no }", False),
        ("exec_command", "neither header nor error", False),
        ("shell", "failed to parse function arguments: missing field `command`", False),
        ("wait_agent", "invalid agent id x: Error(Parse)", False),
        ("view_image", "attached local image path", True),
    ],
)  # fmt: skip
def test_failed_calls_without_an_exit_code(name: str, value: Any, ok: bool) -> None:
    report = read(meta(), call("c", name=name), output("c", value))
    assert [tool.ok for tool in report.tools] == [ok]


def test_exit_code_and_duration_are_those_of_the_output() -> None:
    """0.40 writes call and result when the response ends, at the same time."""
    old = json.dumps({"output": "no\n", "metadata": {"exit_code": 3, "duration_seconds": 1.0}})
    lines = (meta(), prompt("do"), call("c", 5), output("c", old, 5), answer("Done.", 5))
    report = read(*lines)
    assert [(tool.error, tool.duration_ms) for tool in report.tools] == [("no\n", 1000)]
    (result,) = (event for event in events(*lines) if isinstance(event, ev.ToolResult))
    assert result.output == ev.ToolResultDetails(exit_code=3)
    assert bytes(result.content) == b'"no\\n"'


def test_an_event_has_the_exit_code_that_the_output_lacks() -> None:
    ended: Json = {"call_id": "c", "exit_code": 3, "duration": {"secs": 2, "nanos": 500_000_000}}
    report = read(
        meta("0.99.0"), call("c"), line("event_msg", type="exec_command_end", **ended),
        output("c", "plain"),
    )  # fmt: skip
    assert [(tool.ok, tool.duration_ms) for tool in report.tools] == [(False, 2500)]


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("failed in sandbox LinuxSeccomp with execution error: sandbox denied exec error", True),
        ("failed in sandbox MacosSeatbelt with execution error: Denied { output: X }", True),
        ("failed to parse function arguments: x", False),
    ],
)
def test_a_command_that_the_sandbox_stopped_up_to_0_44(text: str, denied: bool) -> None:
    policy = context(sandbox_policy={"mode": "read-only"})
    report = read(meta(), policy, call("c"), output("c", text), answer("No."))
    assert [tool.denied for tool in report.tools] == [denied]
    assert report.verdict == ("permission" if denied else "success")


# -- token counts ------------------------------------------------------------------------------

# Orders of lines as the real programs write them, by version: a number is a count, with its total
# and, unless it is all of it, its last; None is a count without figures.
SEQUENCES = [
    ("0.40.0", "one request", ["p", "a", 101], [101]),
    ("0.40.0", "a call first", ["p", 101, "c", "a", (204, 103)], [101, 103]),
    ("0.40.0", "resumed", ["p", 101, "c", "a", (204, 103), "p", 107, "c", "a", (216, 109)],
     [101, 103, 107, 109]),
    ("0.40.0", "the same again", ["p", "a", 101, "p", "a", 101], [101, 101]),
    ("0.58.0", "repeated", ["p", None, 101, "c", 101, "a", (204, 103)], [101, 103]),
    ("0.58.0", "resumed", ["p", None, "a", 101, "p", None, 107, "c", 107, "a", (216, 109)],
     [101, 107, 109]),
    ("0.58.0", "the same again", ["p", None, "a", 101, "p", None, "a", 101], [101, 101]),
    ("0.80.0", "resumed",
     ["p", None, "a", 101, "p", 101, "c", (204, 103), (204, 103), "a", (311, 107)],
     [101, 103, 107]),
    ("0.80.0", "cut: the total of an earlier run", ["p", 101, "c", (204, 103)], [103]),
    ("0.142.0", "no repetitions", ["p", "c", 101, "a", (204, 103)], [101, 103]),
    ("0.142.0", "cut", ["p", "c", (204, 103)], [103]),
    ("0.0.0", "own build, a call first", ["p", 101, "c", 101, "a", (204, 103)], [101, 103]),
    ("0.0.0", "own build, cut", ["p", (204, 103), "c", (311, 107)], [107]),
    (None, "unknown", ["p", 101, "c", "a", (204, 103)], [101, 103]),
]  # fmt: skip


@pytest.mark.parametrize(("version", "name", "order", "requests"), SEQUENCES)
def test_each_request_counts_once(
    version: str | None, name: str, order: list[Any], requests: list[int]
) -> None:
    start = -10.0 if "cut" in name else 0.0  # lines of an earlier run are missing
    lines = [meta(version, at=start), context()]
    for number, step in enumerate(order):
        if step is None or isinstance(step, int):
            lines.append(count(step, step or 0))
        elif isinstance(step, tuple):
            lines.append(count(*step))
        else:
            shown = {"p": prompt(f"{number}"), "a": answer(f"{number}"), "c": call(f"c{number}")}
            lines.append(shown[step])
    found = [event for event in events(*lines) if isinstance(event, ev.Usage)]
    assert [sum_of(event) for event in found] == requests
    report = read(*lines)
    assert (report.requests, report.tokens.total) == (len(requests), sum(requests))
    assert report.warnings == []


def sum_of(event: ev.Usage) -> int:
    return sum(
        part or 0 for part in (event.input, event.cache_write, event.cache_read, event.output)
    )


def test_the_requests_of_a_scan_are_those_of_the_whole_file() -> None:
    """A scan decodes only lines with counts, so that nothing shows that the model has answered."""
    lines = [meta("0.142.0"), context(), prompt("x"), call("c"), count(101, 101)]
    found = CODEX.transcripts.scan_usage(stream(*lines).splitlines())
    assert [sum_of(event) for event in found if isinstance(event, ev.Usage)] == [101]


def test_a_difference_to_the_files_own_total_is_a_warning() -> None:
    report = read(meta(), context(), prompt("x"), answer("a"), count(101, 101), count(310, 103))
    assert report.tokens.total == 204
    assert report.warnings == ["the requests add up to 204 tokens, the session's own total is 310"]


def test_a_window_that_is_full_is_no_difference() -> None:
    """Codex then sets the total to the window, and counts from zero."""
    full = line(
        "event_msg",
        type="token_count",
        info={
            "total_token_usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 272_000},
            "last_token_usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 271_899},
        },
    )
    report = read(
        meta(), context(), answer("a"), count(101, 101), full, answer("b"), count(107, 107)
    )
    assert (report.tokens.total, report.requests, report.warnings) == (208, 2, [])


# -- forks -------------------------------------------------------------------------------------

PARENT_TURN = "01a1f091-ff4a-74d0-97d4-da909754b8c7"
OWN_TURN = "01a1f092-0578-7d72-9225-736b8b239f0c"


def test_a_fork_has_its_own_prompts_and_requests() -> None:
    """0.142: the rollout begins with a copy of the one that it was forked from."""
    copied = (
        meta("0.142.0", PARENT),
        line("event_msg", type="task_started", turn_id=PARENT_TURN),
        context(turn_id=PARENT_TURN),
        prompt("of the parent"),
        call("c1"),
        output("c1", "Exit code: 0\nWall time: 1 seconds\nOutput:\n", 0.4),
        count(101, 101),
        answer("The parent is done."),
        count(204, 103),
        line("event_msg", type="task_complete", turn_id=PARENT_TURN),
    )
    own = (
        line("event_msg", 0.41, type="task_started", turn_id=OWN_TURN),
        context(turn_id=OWN_TURN),
        prompt("of the fork"),
        call("c1"),
        output("c1", "Exit code: 0\nWall time: 2 seconds\nOutput:\n"),
        count(311, 107),
        answer("The fork is done."),
        count(420, 109),
        line("event_msg", 3.0, type="task_complete", turn_id=OWN_TURN),
    )
    lines = (meta("0.142.0"), *copied, *own)
    report = read(*lines)
    assert (report.session_id, report.text) == (THREAD, "The fork is done.")
    assert (report.tokens.total, report.requests, report.warnings) == (216, 2, [])
    assert [tool.duration_ms for tool in report.tools] == [2000]
    prompts = [event.text for event in events(*lines) if isinstance(event, ev.UserMessage)]
    assert prompts == ["of the fork"]
    whole = read(meta("0.142.0", PARENT), *copied[1:])
    assert (whole.session_id, whole.tokens.total) == (PARENT, 204)


def test_a_fork_of_a_version_without_turns() -> None:
    """0.98: the copy is written at once."""
    lines = (
        meta("0.98.0"),
        meta("0.98.0", PARENT, 0.001),
        prompt("of the parent", 0.002),
        context(0.002),
        count(None, at=0.003),
        answer("The parent is done.", 0.014),
        count(101, 101, 0.014),
        prompt("of the fork", 0.045),
        context(0.045),
        count(101, 101, 0.046),
        answer("The fork is done.", 0.3),
        count(204, 103, 0.3),
    )
    report = read(*lines)
    assert (report.text, report.tokens.total, report.requests) == ("The fork is done.", 103, 1)
    assert report.warnings == []


# -- forms of the lines ------------------------------------------------------------------------


def test_lines_without_a_payload_of_their_own() -> None:
    """In some public files of 2025 the fields stand beside the timestamp."""
    lines = [
        {"timestamp": wrapped["timestamp"], "type": wrapped["payload"].get("type", wrapped["type"])}
        | {name: value for name, value in wrapped["payload"].items() if name != "type"}
        for wrapped in (
            meta("0.45.0"),
            context(),
            line("response_item", type="message", role="user",
                 content=[{"type": "input_text", "text": "do"}]),
            line("response_item", type="message", role="assistant",
                 content=[{"type": "output_text", "text": "Done."}]),
            count(101, 101),
        )
    ]  # fmt: skip
    report = read(*lines)
    assert (report.agent, report.session_id, report.model) == ("codex", THREAD, "gpt-5-codex")
    assert (report.text, report.tokens.total, report.lines.unknown) == ("Done.", 101, 0)


BARE = (
    {"id": PARENT, "timestamp": "2025-08-20T10:00:00.000Z", "instructions": None,
     "git": {"commit_hash": "e0cdd253", "branch": "main"}},
    {"record_type": "state"},
    {"type": "message", "id": None, "role": "user", "content": [
        {"type": "input_text", "text": "<environment_context>\n  <cwd>/p/q</cwd>\n</x>"}]},
    {"type": "message", "id": None, "role": "user",
     "content": [{"type": "input_text", "text": "do it"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Think"}]},
    {"type": "function_call", "id": "f", "name": "shell", "arguments": "{}", "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1",
     "output": '{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.5}}'},
    {"type": "message", "id": "m", "role": "assistant",
     "content": [{"type": "output_text", "text": "Done."}]},
)  # fmt: skip


def test_a_rollout_of_2025_08() -> None:
    """Its lines are what is the payload now; it has no tokens, which is not 0."""
    report = read(*BARE)
    assert (report.agent, report.session_id, report.cwd) == ("codex", PARENT, "/p/q")
    assert (report.origin.branch, report.verdict, report.text) == ("main", "success", "Done.")
    assert (report.tokens.total, report.requests, report.lines.unknown) == (None, None, 0)
    assert [(tool.name, tool.ok, tool.duration_ms) for tool in report.tools] == [
        ("shell", False, 500)
    ]
    shown = [event for event in events(*BARE) if isinstance(event, ev.UserMessage | ev.Thinking)]
    assert [event.text for event in shown] == ["do it", "Think"]
    assert all(CODEX.transcripts.is_line(stream(bare)) for bare in BARE[:2])


def test_a_document_of_2025_06() -> None:
    items = [*BARE[2:5], {
        "type": "local_shell_call", "id": "s1", "call_id": "s1", "status": "completed",
        "action": {"type": "exec", "command": ["bash", "-lc", "ls"]},
    }, {
        "type": "local_shell_call_output", "id": "s1",
        "output": '{"output":"a","metadata":{"exit_code":0,"duration_seconds":0.1}}',
    }, BARE[-1]]  # fmt: skip
    session = {"timestamp": "2025-06-20T10:00:00.000Z", "id": PARENT, "instructions": ""}
    document = json.dumps({"session": session, "items": items}, indent=2).encode()
    for data in (document, json.dumps(json.loads(document)).encode()):
        report = steno.read(data)
        assert (report.agent, report.session_id, report.text) == ("codex", PARENT, "Done.")
        assert [(tool.kind, tool.ok) for tool in report.tools] == [("shell", True)]


def sent(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def test_messages_without_events_are_read_as_they_were_sent() -> None:
    lines = (
        meta(), sent("developer", "be good"), sent("user", "# AGENTS.md instructions for /p"),
        sent("user", "do it"), sent("assistant", "Done."), answer("Done."),
        sent("assistant", "Ok."),
    )  # fmt: skip
    texts = [event.text for event in events(*lines) if isinstance(event, ev.Text | ev.UserMessage)]
    assert texts == ["do it", "Done."]
    assert read(*lines[:5], lines[6]).text == "Done.\nOk."


def test_messages_with_events_are_read_from_those() -> None:
    lines = (meta(), sent("user", "do it, of course"), prompt("do it"), sent("assistant", "Done."),
             answer("Done."))  # fmt: skip
    texts = [event.text for event in events(*lines) if isinstance(event, ev.Text | ev.UserMessage)]
    assert texts == ["do it", "Done."]


@pytest.mark.parametrize(
    "other",
    [
        {"timestamp": "2026-01-01T00:00:00Z", "type": "turn_begin", "payload": {"user_input": "x"}},
        {"timestamp": 1, "type": "llm.request", "payload": {}},
        {"id": "1", "msg": {"type": "x"}, "more": 1},
        {"id": "1", "msg": "x"},
        {"items": [], "session": {"id": "1"}},
        {"prompt": "x"},
    ],
)
def test_lines_of_other_programs_are_not_taken_for_codex(other: Json) -> None:
    assert detect_agent(stream(other)) is None


@pytest.mark.parametrize("size", [1, 3, 7])
def test_an_older_rollout_in_parts_says_the_same(size: int) -> None:
    """L3: the state survives between two parts, also that of a fork."""
    copied = (meta("0.98.0"), meta("0.98.0", PARENT, 0.001), count(101, 101, 0.002))
    fork = (*copied, prompt("own", 1), context(1), count(101, 101, 1), answer("x"), count(204, 103))
    for lines in (BARE, fork, (meta(), sent("user", "do it"), sent("assistant", "Done."))):
        data = stream(*lines).splitlines()
        whole = CODEX.reader()
        expected = [
            event for number, one in enumerate(data, 1) for event in whole.read(one, number)
        ]
        found: list[ev.Event] = []
        state = CODEX.reader().state()
        for start in range(0, len(data), size):
            part = CODEX.reader()
            part.restore(state)
            for number, one in enumerate(data[start : start + size], start + 1):
                found += part.read(one, number)
            state = part.state()
        assert found == expected


# -- the stream of versions up to 0.42 ---------------------------------------------------------


def test_the_stream_of_0_40_equals_its_rollout() -> None:
    case = ROOT / "codex/0.40.0/commands"
    (rollout,) = case.glob("sessions/*.jsonl")
    streamed, stored = steno.read(case), steno.read(rollout)
    assert (streamed.tokens, streamed.requests) == (stored.tokens, stored.requests)
    assert (streamed.text, streamed.model, streamed.cwd) == (stored.text, stored.model, stored.cwd)
    assert streamed.context == stored.context
    assert [(tool.ok, tool.error) for tool in streamed.tools] == [
        (tool.ok, tool.error) for tool in stored.tools
    ]


def test_the_stream_of_0_20_equals_its_rollout() -> None:
    """That has no tokens, which is not 0."""
    case = ROOT / "codex/0.20.0/patch"
    (rollout,) = case.glob("sessions/*.jsonl")
    streamed, stored = steno.read(case), steno.read(rollout)
    assert (streamed.tokens.total, streamed.requests, streamed.verdict) == (18628, 2, "success")
    assert (stored.tokens.total, stored.requests, stored.verdict) == (None, None, "success")
    assert streamed.text == stored.text == "Patched."
    assert [file.path for file in streamed.files] == [file.path for file in stored.files]


def message(kind: str, **fields: Any) -> Json:
    return {"id": "0", "msg": {"type": kind, **fields}}


SETUP = {"workdir": "/p", "model": "o4-mini", "provider": "x", "sandbox": "read-only"}


def test_calls_in_the_stream_of_0_40() -> None:
    ok = {"content": [{"type": "text", "text": "rows"}], "isError": False}
    asked = {"server": "db", "tool": "ask", "arguments": {"q": 1}}
    second = {"secs": 1, "nanos": 0}
    report = read(
        SETUP,
        {"prompt": "do"},
        message("mcp_tool_call_begin", call_id="m1", invocation=asked),
        message("mcp_tool_call_end", call_id="m1", invocation=asked, duration=second,
                result={"Ok": ok}),
        message("mcp_tool_call_begin", call_id="m2", invocation=asked),
        message("mcp_tool_call_end", call_id="m2", invocation=asked, result={"Err": "no"}),
        message("web_search_begin", call_id="w1"),
        message("web_search_end", call_id="w1", query="x"),
        message("plan_update", plan=[{"step": "a", "status": "pending"}]),
        message("patch_apply_begin", call_id="p1", changes={
            "/p/a": {"add": {"content": ""}}, "/p/b": {"delete": {"content": ""}},
            "/p/c": {"update": {"unified_diff": "", "move_path": "/p/d"}},
            "/p/e": {"update": {"unified_diff": "", "move_path": None}}}),
        message("patch_apply_end", call_id="p1", success=True, stdout="Success.", stderr=""),
        message("patch_apply_begin", call_id="p2", changes={"/p/f": {"add": {}}}),
        message("patch_apply_end", call_id="p2", success=False, stdout="", stderr="conflict"),
    )  # fmt: skip
    assert [(tool.name, tool.ok, tool.duration_ms) for tool in report.tools] == [
        ("mcp__db__ask", True, 1000),
        ("mcp__db__ask", False, None),
        ("web_search", True, None),
        ("update_plan", True, None),
        ("apply_patch", True, None),
        ("apply_patch", False, None),
    ]
    assert [(file.path, file.change) for file in report.files] == [
        ("a", "created"),
        ("b", "deleted"),
        ("c", "deleted"),
        ("d", "created"),
        ("e", "modified"),
    ]
    assert (report.agent, report.model, report.verdict) == ("codex", "o4-mini", "no_result")


def test_an_answer_without_a_call_is_the_end() -> None:
    """A call that was rejected has no line, so that the run may go on after an answer."""
    first = message("token_count", input_tokens=90, cached_input_tokens=10, output_tokens=5)
    last = message("token_count", input_tokens=190, cached_input_tokens=110, output_tokens=7)
    begun = (SETUP, {"prompt": "do"}, message("agent_message", message="I will."), first)
    assert (read(*begun).verdict, read(*begun).result) == ("success", "I will.")
    report = read(*begun, message("agent_message", message="Done."), last)
    assert (report.verdict, report.result, report.requests) == ("success", "Done.", 2)
    assert (report.tokens.input, report.tokens.cache_read, report.tokens.output) == (160, 120, 12)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("exceeded retry limit, last status: 401 Unauthorized", "auth"),
        ("unexpected status 404 Not Found: {}", "invalid_request"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit"),
        ("stream disconnected before completion: stream closed before completed", "network"),
    ],
)
def test_an_error_of_0_40_with_exit_code_0(text: str, verdict: str) -> None:
    retry = message("stream_error", message=f"stream error: {text}; retrying 2/5 in 211ms…")
    report = read(SETUP, {"prompt": "do"}, retry, message("error", message=text))
    assert (report.verdict, report.error, report.ok) == (verdict, text, False)
    (announced,) = report.retries
    assert (announced.attempt, announced.delay_ms, announced.error) == (2, 211, text)


def test_a_stream_of_0_40_that_stops_has_no_result() -> None:
    begun = message("exec_command_begin", call_id="c", command=["bash", "-lc", "sleep 9"])
    report = read(SETUP, {"prompt": "do"}, message("agent_message", message="Wait."), begun)
    assert (report.verdict, report.complete, report.requests) == ("no_result", False, None)


@pytest.mark.parametrize(
    ("info", "verdict"),
    [
        ("model_not_found", "invalid_request"),
        ("misalignment_policy_violation", "refused"),
        ("context_window_exceeded", "context_full"),
        ("hologram", "api"),
    ],
)
def test_a_failed_turn_by_its_error_info(info: str, verdict: str) -> None:
    error = {"message": "It failed.", "codex_error_info": info}
    report = read(meta("0.169.0"), line("event_msg", type="task_complete", error=error))
    assert report.verdict == verdict


# -- session files beside a stream -------------------------------------------------------------


@pytest.mark.parametrize("name", ["sessions", "session-files", "home/.codex/sessions/2026/11/16"])
def test_the_rollout_is_found_anywhere_in_the_folder_of_a_recording(
    tmp_path: Path, name: str
) -> None:
    case = ROOT / "codex/0.80.0/patch_rejected"
    for file in ("stdout", "exit_code"):
        (tmp_path / file).write_bytes((case / file).read_bytes())
    (rollout,) = case.rglob("rollout-*.jsonl")
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / rollout.name).write_bytes(rollout.read_bytes())
    (tmp_path / name / rollout.name.replace("-01", "-02")).write_bytes(b"another session\n")
    assert steno.read(tmp_path).verdict == "permission"


def test_the_state_of_an_earlier_version_can_be_continued() -> None:
    """Fields that this version does not know are ignored, new ones have their defaults."""
    reader = CODEX.reader()
    reader.restore(b'{"rollout":{"session":"x","total":5,"recorded":false}}')
    (event,) = reader.read(dump(answer("Done.")), 4)
    assert event.session == "x"
