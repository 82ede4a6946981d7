"""Unusual input, one test each: line endings, malformed lines, encodings, wrong types."""

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import steno
from steno import event as ev
from steno.report import (
    BackgroundTask,
    Context,
    Cost,
    LineCounts,
    RateLimitStatus,
    Report,
    Tokens,
    ToolCallCounts,
)
from tests.support.claude_lines import (
    CWD,
    MODEL,
    RECORDINGS,
    SESSION,
    Json,
    answer,
    assistant,
    call,
    delta,
    dump,
    failed,
    folder,
    hello,
    init,
    opened,
    outcome,
    plain,
    report,
    result,
    share,
    spread,
    stream,
    system,
    text,
    usage,
    user,
    worked,
)

# -- one reader for every way in (I1) ------------------------------------------------------------


def _as_file(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return path


WAYS: dict[str, Callable[[bytes, Path], Any]] = {
    "bytes": lambda data, path: data,
    "a path": _as_file,
    "a path as text": lambda data, path: str(_as_file(data, path)),
    "a binary stream": lambda data, path: io.BytesIO(data),
    "an open file": lambda data, path: _as_file(data, path).open("rb"),
    "lines of bytes": lambda data, path: data.splitlines(keepends=True),
    "lines of text without newlines": lambda data, path: data.decode().split("\n")[:-1],
    "gzip": lambda data, path: _as_file(gzip.compress(data), path),
    "zstd": lambda data, path: _as_file(zstandard.compress(data), path),
    "a folder": lambda data, path: folder(path, data),
}


@pytest.mark.parametrize("way", WAYS)
def test_i1_every_way_in_gives_the_same_report(way: str, tmp_path: Path) -> None:
    data = stream(*worked())
    given = WAYS[way](data, tmp_path / "given")
    found = plain(steno.read(given))
    if hasattr(given, "close"):
        given.close()
    assert found == plain(steno.read(data))


def test_i1_a_file_that_is_not_there_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(steno.SourceError, match="nowhere"):
        steno.read(tmp_path / "nowhere")


def test_i1_a_text_stream_is_refused_with_a_reason() -> None:
    with pytest.raises(steno.SourceError, match="binary"):
        steno.read(io.StringIO("{}"))


def test_i1_the_report_can_be_taken_twice() -> None:
    error = "API Error: 500 no luck"
    echo = assistant(text(error), model="<synthetic>")
    reading = steno.RunParser()
    reading.feed(stream(init(), assistant(text("Before.")), echo, failed(error)))
    reading.close()
    first = reading.report().to_json()
    assert reading.report().to_json() == first


# -- endings -------------------------------------------------------------------------------------


def test_s_a_result_without_its_text_keeps_what_the_messages_said() -> None:
    found = report(init(), assistant(text("It is done.")), result(None))
    assert (found.verdict, found.ok, found.result, found.text) == (
        "success",
        True,
        None,
        "It is done.",
    )


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("is_error", [False, True])
def test_v4_max_turns_whatever_is_error_and_the_exit_say(
    is_error: bool, code: int, tmp_path: Path
) -> None:
    end = result(None, subtype="error_max_turns", is_error=is_error, num_turns=3)
    found = steno.read(
        folder(tmp_path / "run", stream(init(), assistant(text("Half way.")), end), code)
    )
    told = (found.verdict, found.ok, found.subtype, found.exit_code, found.turns, found.evidence)
    assert told == ("max_turns", False, "error_max_turns", code, 3, [3])


def test_v4_success_with_is_error_is_a_failure() -> None:
    found = report(init(), failed("API Error: 500 internal"))
    assert (found.verdict, found.ok, found.succeeded, found.error) == (
        "api",
        False,
        False,
        "API Error: 500 internal",
    )
    assert found.error_category == "api"


@pytest.mark.parametrize("subtype", ["error_during_execution", "error_from_the_future"])
def test_v4_any_other_error_subtype_is_a_failure(subtype: str) -> None:
    found = report(
        init(), assistant(text("Hm.")), result(None, subtype=subtype, errors=["it broke"])
    )
    assert (found.verdict, found.ok, found.error) == ("api", False, "it broke")


def test_e4_an_empty_echo_does_not_replace_the_result() -> None:
    echo = result("", num_turns=1, duration_ms=5)
    found = report(init(), assistant(text("The answer.")), result("The answer."), init(), echo)
    assert (found.result, found.verdict, found.complete) == ("The answer.", "success", True)


def test_e4_of_two_real_results_the_last_counts() -> None:
    second = assistant(text("Second."), message="msg_2")
    found = report(
        init(), assistant(text("First.")), result("First."), init(), second, result("Second.")
    )
    assert (found.result, found.text) == ("Second.", "First.\nSecond.")


def test_e4_an_error_without_text_is_no_echo() -> None:
    found = report(init(), assistant(text("First.")), result("First."), failed(None))
    assert (found.verdict, found.error) == ("api", "API error (no detail)")


def test_e4_the_first_key_source_that_is_text_wins() -> None:
    lines = [
        init(apiKeySource=7),
        init(apiKeySource="none"),
        init(apiKeySource="ANTHROPIC_API_KEY"),
    ]
    assert report(*lines).api_key_source == "none"


def test_v9_no_result_is_still_judged_by_the_messages() -> None:
    found = report(init(), assistant(text("I begin.")))
    assert (found.verdict, found.complete, found.text, found.requests) == (
        "no_result",
        False,
        "I begin.",
        1,
    )
    assert found.tokens == Tokens(3, 1001, 20000, 1, None, 21005)


def test_i2_an_empty_file_is_a_run_without_anything(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    found = steno.read(path)
    assert (found.agent, found.verdict, found.complete, found.lines) == (
        None,
        "no_result",
        False,
        LineCounts(),
    )
    assert (found.tokens, found.cost, found.cache_hit_rate) == (Tokens(), Cost(), None)
    assert found.context == Context(limit=200_000)


# -- lines that are not what they should be (I2, I3) ---------------------------------------------


def test_i3_what_is_not_an_object_is_counted_and_skipped() -> None:
    head, *rest = hello()
    odd = [b"null", b"[]", b"123", b'"words"', b"Welcome to the agent!", b"", b"  \t"]
    found = report(head, *odd, *rest)
    assert found.lines == LineCounts(read=10, blank=2, malformed=1, not_object=4)
    assert (found.verdict, found.text) == ("success", "Hello there.")


@pytest.mark.parametrize("odd", [b"null", b"[]", b"123", b"[1,2]", b"Welcome!", b"{not json}"])
def test_i3_an_odd_first_line_costs_only_itself(odd: bytes) -> None:
    found = report(odd, *hello())
    assert (found.verdict, found.text, found.lines.read) == ("success", "Hello there.", 4)
    assert found.lines.malformed + found.lines.not_object == 1


def test_i3_a_malformed_line_says_where_and_what() -> None:
    found = [
        event
        for event in steno.events(stream(init(), b"x" * 300))
        if isinstance(event, ev.Malformed)
    ]
    assert found == [ev.Malformed(2, None, None, None, "x" * 200, False)]


def test_i3_two_objects_glued_on_one_line_are_both_read() -> None:
    first, second, third = hello()
    found = report(dump(first) + dump(second), third)
    assert plain(found) == {
        **plain(report(first, second, third)),
        "lines": plain(found)["lines"],
        "evidence": [2],
    }
    assert found.lines == LineCounts(read=2)


def test_i3_an_object_before_a_broken_rest_is_kept() -> None:
    found = report(init(), dump(assistant(text("Kept."))) + b"<<<", result("Kept."))
    assert (found.text, found.lines) == ("Kept.", LineCounts(read=3, malformed=1))


def test_i2_a_byte_order_mark_is_not_text() -> None:
    assert plain(steno.read(b"\xef\xbb\xbf" + stream(*hello()))) == plain(report(*hello()))


def test_i2_crlf_ends_lines_too() -> None:
    data = stream(*worked())
    assert plain(steno.read(data.replace(b"\n", b"\r\n"))) == plain(steno.read(data))


def test_i2_invalid_utf8_is_replaced_and_nothing_else_lost() -> None:
    line = dump(assistant(text("left~right"))).replace(b"~", b"\xff\xfe")
    found = report(init(), line, result())
    assert (found.text, found.requests, found.tokens.total) == ("left\ufffd\ufffdright", 1, 21105)
    assert found.lines == LineCounts(read=3)


@pytest.mark.parametrize("raw", [b"\\u0000", b"\x00"], ids=["escaped", "raw"])
def test_i2_nul_in_a_text_is_text(raw: bytes) -> None:
    found = report(init(), dump(assistant(text("a~b"))).replace(b"~", raw), result())
    assert (found.text, found.lines) == ("a\x00b", LineCounts(read=3))


def test_i2_nul_around_a_line_is_noise() -> None:
    first, second, third = hello()
    found = report(first, b"\x00\x00" + dump(second) + b"\x00", third, b"\x00\x00")
    assert (found.text, found.lines) == ("Hello there.", LineCounts(read=4, blank=1))


def test_i2_a_lone_surrogate_can_still_be_written() -> None:
    line = dump(assistant(text("half ~ a face"))).replace(b"~", b"\\ud83d")
    found = report(init(), line, result())
    assert found.text == "half \ufffd a face"
    assert json.loads(found.to_json())["text"] == "half \ufffd a face"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_i2_only_a_newline_ends_a_line(mark: str) -> None:
    words = f"one{mark}two"
    found = report(init(), assistant(text(words)), result(words))
    assert (found.text, found.result, found.lines) == (words, words, LineCounts(read=3))


def test_i2_a_line_of_five_megabytes_is_a_line() -> None:
    words = "long " * 1_048_576
    found = report(init(), assistant(text(words)), result(words))
    assert (found.text == words, found.result == words, found.lines) == (
        True,
        True,
        LineCounts(read=3),
    )


def test_i2_a_torn_last_line_is_reported_and_costs_only_itself() -> None:
    data = stream(*hello())
    found = steno.read(data[:-40])
    assert (found.verdict, found.complete, found.text) == ("no_result", False, "Hello there.")
    assert found.lines == LineCounts(read=3, torn=True)


def test_i2_a_last_line_without_newline_is_whole() -> None:
    assert plain(steno.read(stream(*hello())[:-1])) == plain(report(*hello()))


def test_i2_a_torn_line_after_the_result_makes_it_incomplete() -> None:
    found = steno.read(stream(*hello()) + b'{"type":"system","sub')
    assert (found.verdict, found.complete, found.lines) == (
        "success",
        False,
        LineCounts(read=4, torn=True),
    )


def test_i1_a_pretty_printed_result_is_one_object() -> None:
    document = json.dumps(result("Hello."), indent=2).encode()
    found = steno.read(document)
    assert plain(found) == plain(report(result("Hello.")))


def test_i1_an_array_of_events_is_a_stream() -> None:
    lines = worked()
    assert plain(steno.read(dump(lines))) == plain(report(*lines))
    assert plain(steno.read(dump(lines) + b"\n")) == plain(report(*lines))
    assert plain(steno.read(json.dumps(lines, indent=2).encode())) == plain(report(*lines))


# -- messages and their odd shapes ---------------------------------------------------------------


def test_e1_user_content_may_be_a_plain_string() -> None:
    found = list(
        steno.events(stream(user("Say hello."), user("The summary so far.", isSynthetic=True)))
    )
    assert found == [
        ev.UserMessage(1, SESSION, None, None, "prompt", "Say hello."),
        ev.UserMessage(2, SESSION, None, None, "synthetic", "The summary so far."),
    ]


def test_e1_assistant_content_may_be_a_plain_string() -> None:
    line = assistant()
    line["message"]["content"] = "Just words."
    assert report(init(), line, result()).text == "Just words."


def test_e2_several_results_in_one_event_are_each_paired() -> None:
    calls = assistant(
        call("toolu_1", "Bash", command="ls"), call("toolu_2", "Read", file_path="/etc/hosts")
    )
    found = report(
        init(),
        calls,
        user([outcome("toolu_2"), outcome("toolu_1", "no such file", True)]),
        result(),
    )
    assert [(tool.id, tool.kind, tool.ok, tool.error) for tool in found.tools] == [
        ("toolu_1", "shell", False, "no such file"),
        ("toolu_2", "file_read", True, None),
    ]
    assert found.tool_counts == {"Bash": ToolCallCounts(1, 1), "Read": ToolCallCounts(1, 0)}


def test_w2_several_writes_answered_in_one_event_keep_their_own_paths() -> None:
    calls = [
        call("toolu_1", "Write", file_path=f"{CWD}/a"),
        call("toolu_2", "Write", file_path=f"{CWD}/b"),
    ]
    both = user(
        [outcome("toolu_1"), outcome("toolu_2")],
        tool_use_result={"type": "create", "filePath": f"{CWD}/a"},
    )
    found = report(init(), assistant(*calls), both, result())
    assert [(file.path, file.tools) for file in found.files] == [
        ("a", ["toolu_1"]),
        ("b", ["toolu_2"]),
    ]


def test_e2_duplicates_and_orphans_change_no_figure() -> None:
    lines = worked()
    again = [lines[2], lines[3], answer("toolu_9", "whose?", True)]
    found = report(*lines[:4], *again, *lines[4:])
    assert found.tool_counts == {
        "Write": ToolCallCounts(1, 0),
        "Bash": ToolCallCounts(1, 0),
        "Task": ToolCallCounts(1, 0),
    }
    assert "1 tool result without a matching call" in found.warnings


def test_e2_results_out_of_order_have_their_own_durations() -> None:
    calls = [
        assistant(call("toolu_1", "Bash"), timestamp="2026-11-15T06:00:00.000Z"),
        assistant(call("toolu_2", "Bash"), timestamp="2026-11-15T06:00:00.250Z"),
    ]
    answers = [
        answer("toolu_2", timestamp="2026-11-15T06:00:01.000Z"),
        answer("toolu_1", timestamp="2026-11-15T08:00:03.500+02:00"),
    ]
    found = report(init(), *calls, *answers, result())
    assert [(tool.id, tool.duration_ms) for tool in found.tools] == [
        ("toolu_1", 3500),
        ("toolu_2", 750),
    ]


def test_e2_a_call_inside_a_subagent_names_its_parent() -> None:
    inner = assistant(call("toolu_2", "Bash"), message="msg_2", parent="toolu_1")
    done = answer("toolu_2", parent="toolu_1")
    found = report(
        init(), assistant(call("toolu_1", "Task")), inner, done, answer("toolu_1"), result()
    )
    assert [(tool.id, tool.parent, tool.ok) for tool in found.tools] == [
        ("toolu_1", None, True),
        ("toolu_2", "toolu_1", True),
    ]


@pytest.mark.parametrize(
    "more", [{"error": "server_error", "is_api_error_message": True}, {}], ids=["newer", "older"]
)
def test_e5_an_api_error_is_no_text_of_the_model(more: Json) -> None:
    words = "API Error: 500 no luck"
    told = assistant(
        text(words), model="<synthetic>", message="msg_2", used=usage(0, 0, 0, 0), **more
    )
    found = report(init(), assistant(text("I begin.")), told, failed(words))
    assert (found.text, found.error, found.requests) == ("I begin.", words, 1)


def test_e5_an_unfinished_answer_is_kept_when_the_run_is_cut() -> None:
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "So fa"}}
    piece = {
        "type": "stream_event",
        "event": event,
        "session_id": SESSION,
        "parent_tool_use_id": None,
    }
    assert report(init(), assistant(text("One.")), opened("msg_2"), piece).text == "One.\nSo fa"
    finished = [init(), opened(), piece, assistant(text("So far.")), result("So far.")]
    assert report(*finished).text == "So far."


def test_e2_old_and_new_names_are_one_kind() -> None:
    names = [
        "Task",
        "Agent",
        "BashOutput",
        "TaskOutput",
        "MultiEdit",
        "Edit",
        "NotebookEdit",
        "mcp__git__log",
        "Sing",
    ]
    found = report(assistant(*(call(f"toolu_{index}", name) for index, name in enumerate(names))))
    kinds = [
        "subagent",
        "subagent",
        "shell",
        "shell",
        "file_edit",
        "file_edit",
        "notebook",
        "mcp",
        "other",
    ]
    assert [tool.kind for tool in found.tools] == kinds


STRUCTURED: list[tuple[Any, Any]] = [
    ("Error: it failed", b'"Error: it failed"'),
    ([{"type": "image", "source": {}}], b'[{"type":"image","source":{}}]'),
    ({"someday": 1}, b'{"someday":1}'),
    (
        {"stdout": "out", "stderr": "", "interrupted": False},
        {"stdout": b'"out"', "stderr": b'""', "interrupted": False},
    ),
]


@pytest.mark.parametrize(
    ("given", "expected"), STRUCTURED, ids=["string", "list", "unknown object", "bash"]
)
def test_e3_a_structured_result_may_be_anything(given: Any, expected: Any) -> None:
    data = stream(
        assistant(call("toolu_1", "Bash", command="ls")), answer("toolu_1", tool_use_result=given)
    )
    (found,) = (event for event in steno.events(data) if isinstance(event, ev.ToolResult))
    assert (found.id, found.is_error, bytes(found.content)) == ("toolu_1", False, b'"ok"')
    if isinstance(expected, bytes):
        assert isinstance(found.output, type(found.content))
        assert bytes(found.output) == expected
    else:
        assert isinstance(found.output, ev.ToolResultDetails)
        assert {"stdout": bytes(found.output.stdout), "stderr": bytes(found.output.stderr)} == {
            "stdout": expected["stdout"],
            "stderr": expected["stderr"],
        }
        assert found.output.interrupted is False


@pytest.mark.parametrize(
    "content", [None, "", [], [{"type": "text", "text": "bad"}], {"odd": 1}, 7]
)
def test_e3_the_content_of_a_failed_result_may_be_anything(content: Any) -> None:
    found = report(
        init(), assistant(call("toolu_1", "Bash")), answer("toolu_1", content, True), result()
    )
    assert [(tool.ok, tool.denied) for tool in found.tools] == [(False, False)]


# -- counting ------------------------------------------------------------------------------------


def test_m2_a_growing_output_counts_once_and_at_its_largest() -> None:
    parts = [assistant(text(str(size)), used=usage(output=size)) for size in (1, 40, 101, 60)]
    found = report(init(), *parts)
    assert (found.requests, found.tokens) == (1, Tokens(3, 1001, 20000, 101, None, 21105))


def test_m2_a_streamed_message_ends_with_its_true_output() -> None:
    found = report(init(), opened(), assistant(text("Hi.")), delta(101))
    assert (found.requests, found.tokens.output, found.stop_reason) == (1, 101, "end_turn")


def test_m2_interleaved_messages_count_once_each() -> None:
    one, two = assistant(text("a")), assistant(text("b"), message="msg_2")
    found = report(init(), one, two, one, two)
    assert (found.requests, found.tokens.input, found.tokens.output) == (2, 6, 2)


def test_e5_m3_a_subagent_is_kept_apart_but_counted() -> None:
    sub = assistant(
        text("From below."), message="msg_2", parent="toolu_1", used=usage(7, 500, 90000, 9)
    )
    task = assistant(call("toolu_1", "Task", description="Look", subagent_type="Explore"))
    found = report(
        init(),
        task,
        sub,
        answer("toolu_1", "done"),
        assistant(text("From above."), message="msg_3"),
    )
    assert found.text == "From above."
    assert (found.context.used, found.context.peak) == (21004, 21004)
    assert found.tokens == Tokens(13, 2502, 130000, 11, None, 132526)
    assert [(one.id, one.type, one.description, one.tokens.total) for one in found.subagents] == [
        ("toolu_1", "Explore", "Look", 90516)
    ]


def test_m3_a_synthetic_message_is_no_request() -> None:
    made = assistant(
        text("No response requested."), message="msg_2", model="<synthetic>", used=usage(0, 0, 0, 0)
    )
    found = report(init(), assistant(text("Hi.")), made, result())
    assert (found.requests, found.context.used) == (1, 21004)


def test_m3_a_compaction_event_and_a_text_about_one() -> None:
    words = "I see a compact_boundary: the conversation was compacted."
    boundary = system(
        "compact_boundary",
        compact_metadata={"trigger": "auto", "pre_tokens": 150000, "post_tokens": 2517},
    )
    said = report(init(), assistant(text(words)), user(words), result(words))
    done = report(init(), assistant(text("Hi.")), boundary, result("Hi."))
    assert (said.context.compactions, said.context.used) == (0, 21004)
    assert (done.context.compactions, done.context.used) == (1, 2517)


# -- words and numbers of an error text (V3) -----------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "prompt used 214290 tokens",
        "request req_401abc failed",
        "id 4290, 1429, 40100 and x429y",
        "it took 0.403 seconds",
        "only 1,429 tokens were left",
        "the author was rated",
    ],
)
def test_v3_a_number_counts_only_as_a_whole(words: str) -> None:
    found = report(init(), failed(words))
    assert (found.verdict, found.error_category, found.error) == ("api", "api", words)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("API Error: 429 too many", "rate_limit"),
        ("Request rejected (429) · slow down", "rate_limit"),
        ("Rate Limit exceeded", "rate_limit"),
        ("a RATE-LIMIT was hit", "rate_limit"),
        ("weekly limit reached", "rate_limit"),
        ("Session limit reached", "rate_limit"),
        ("usage limit reached", "rate_limit"),
        ("error 401", "auth"),
        ("HTTP 403: no", "auth"),
        ("Unauthorized", "auth"),
        ("Authentication failed", "auth"),
        ("an auth error", "auth"),
        ("set anthropic_api_key first", "auth"),
        ("401 unauthorized: rate limit of 429 reached", "rate_limit"),
        ("something else", "api"),
    ],
)
def test_v3_the_words_of_an_error_text(words: str, verdict: str) -> None:
    assert report(init(), failed(words)).verdict == verdict


def test_v2_the_transcript_never_decides() -> None:
    words = "The server said 429 rate limit, then 401 unauthorized."
    found = report(init(), assistant(text(words)), failed("it broke"))
    assert (found.verdict, found.text) == ("api", words)


def test_v3_a_long_error_text_is_cut() -> None:
    words = "x" * 4096
    assert report(init(), failed(words)).error == words
    assert report(init(), failed(words + "y")).error == words + " ... (truncated)"


def test_v3_no_text_is_said_so() -> None:
    found = report(init(), failed(None))
    assert (found.verdict, found.error, found.error_category) == (
        "api",
        "API error (no detail)",
        "api",
    )


# -- types (I6) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", 1, "yes", [True], {"is": True}, 1.0, None])
def test_i6_only_true_is_true(value: Any) -> None:
    found = report(init(), assistant(text("Hi.")), result("Hi.", is_error=value))
    assert (found.verdict, found.ok) == ("success", True)


@pytest.mark.parametrize("value", ["true", 1])
def test_i6_a_tool_result_fails_only_by_true(value: Any) -> None:
    found = report(
        init(), assistant(call("toolu_1", "Bash")), answer("toolu_1", "fine", value), result()
    )
    assert [tool.ok for tool in found.tools] == [True]


@pytest.mark.parametrize("value", ["true", 1, "yes"])
def test_i6_a_call_goes_to_the_background_only_by_true(value: Any) -> None:
    made = call("toolu_1", "Bash", command="make", run_in_background=value)
    found = report(init(), assistant(made), answer("toolu_1"), result())
    assert (found.background, found.verdict) == ([], "success")


@pytest.mark.parametrize("value", ["many", "3", 3.5, [3], {}, True, None])
def test_i6_a_counter_of_a_wrong_type_is_unknown(value: Any) -> None:
    found = report(init(), assistant(text("Hi."), used={**usage(), "input_tokens": value}))
    assert found.tokens == Tokens(None, 1001, 20000, 1, None, None)
    assert (found.cache_hit_rate, found.context.used, found.context.text) == (
        None,
        None,
        "HP unknown",
    )
    assert found.cost == Cost(None, "unknown")


def test_i6_wrong_types_cost_only_their_field() -> None:
    end = result(
        "Hi.",
        num_turns="2",
        duration_ms=[1],
        total_cost_usd="free",
        session_id=5,
        permission_denials="none",
    )
    found = report(init(), assistant(text("Hi.")), end)
    told = (
        found.verdict,
        found.result,
        found.turns,
        found.duration_ms,
        found.cost.source,
        found.session_id,
    )
    assert told == ("success", "Hi.", None, None, "computed", SESSION)
    assert found.tokens.total == 21105


# -- numbers that no run can have: unknown, as a field of a wrong type is (I6) -------------------


NUMBERED = [
    path
    for agent in sorted(RECORDINGS.glob("*"))
    for path in spread(sorted([*agent.rglob("stdout"), *agent.rglob("*.jsonl")]), 20)
    if 500 < path.stat().st_size < 60_000
]
SIGNED = ("exit_code", "signal")  # what may be below 0


def _numbered(value: Any, found: set[str]) -> None:
    """The keys that have a number."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, int | float) and not isinstance(item, bool):
            found.add(key)
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _numbered(item, found)


def _renumbered(value: Any, key: str, number: int) -> Any:
    if isinstance(value, list):
        return [_renumbered(item, key, number) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: number
        if name == key and isinstance(item, int | float) and not isinstance(item, bool)
        else _renumbered(item, key, number)
        for name, item in value.items()
    }


def _figures(value: Any, where: str = "") -> dict[str, float]:
    """Every number in a report, by its place."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {where: value}
    if where in (".structured_output", ".denials"):  # what was asked for, as it was asked
        return {}
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return {
        place: number
        for key, item in items
        for place, number in _figures(item, f"{where}.{key}").items()
    }


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: str(path.relative_to(RECORDINGS)))
def test_i6_numbers_that_no_run_can_have_are_unknown(path: Path) -> None:
    try:
        lines = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except ValueError:
        pytest.skip("no lines of JSON")
    keys: set[str] = set()
    _numbered(lines, keys)
    for key in sorted(keys):
        for number in (-1, -(2**70), 2**70):
            data = stream(*(json.dumps(_renumbered(line, key, number)).encode() for line in lines))
            found = steno.read(data)
            figures = _figures(json.loads(found.to_json()))
            wrong = {
                place: one
                for place, one in figures.items()
                if not 0 <= one < 2**63 and place[1:] not in SIGNED
            }
            assert wrong == {}, (key, number)
            assert 0 <= (found.context.hp or 0) <= 100
            json.loads(b"[" + b",".join(map(msgspec.json.encode, steno.events(data))) + b"]")


@pytest.mark.parametrize("window", [-1, 0, 2**70])
def test_m4_a_window_that_none_can_be_is_not_taken(window: int) -> None:
    found = report(
        init(), assistant(text("Hi.")), result("Hi.", modelUsage={MODEL: share(window=window)})
    )
    assert (found.context.limit, found.context.limit_source) == (1_000_000, "known")
    assert found.context.text == "98% HP [21k/1000k] — Healthy"


def test_m7_a_cost_below_nothing_is_unknown() -> None:
    found = report(
        init(),
        assistant(text("Hi.")),
        result("Hi.", total_cost_usd=-1, modelUsage={MODEL: share(cost=-1)}),
    )
    assert (found.cost.source, found.models[MODEL].cost_usd) == ("computed", None)
    assert found.cost.usd is not None
    assert found.cost.usd > 0


@pytest.mark.parametrize("code", ["9" * 30, "-" + "9" * 30])
def test_i6_an_exit_code_that_none_can_be(tmp_path: Path, code: str) -> None:
    ticks = (
        [None, "out", stream(*hello()).decode()],
        [None, "exit", int(code)],
        [None, "end", None],
    )
    found = report(b'{"schema":"steno.tape/1"}', *map(dump, ticks))
    assert (found.exit_code, found.verdict, found.lines.torn) == (None, "success", True)
    path = folder(tmp_path / "case", stream(*hello()))
    (path / "exit_code").write_text(code)
    with pytest.raises(steno.SourceError, match="expected a whole number"):
        steno.read(path)


# -- values that are legal JSON and still too much (I3: nothing in the data ever aborts reading) -


def _deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def _failed_content(raw: bytes) -> list[Json | bytes]:
    return [
        assistant(call("toolu_1", "Bash")),
        dump(answer("toolu_1", "~", True)).replace(b'"~"', raw),
    ]


EXTREMES: dict[str, list[Json | bytes]] = {
    "content of many digits": _failed_content(b"1" * 5000),
    "content nested 600 deep": _failed_content(_deep(600)),
    "content nested 100000 deep": _failed_content(_deep(100_000)),
    "structured output nested 600 deep": [
        dump(result("Hi.", structured_output="~")).replace(b'"~"', _deep(600))
    ],
    "refused input nested 600 deep": [
        dump(result("Hi.", permission_denials=[{"tool_name": "Bash", "tool_input": "~"}])).replace(
            b'"~"', _deep(600)
        )
    ],
    "a cost beyond floats": [result("Hi.", total_cost_usd=1e300)],
    "a duration beyond floats": [
        {"type": "tool_progress", "tool_use_id": "toolu_1", "elapsed_time_seconds": 1e308}
    ],
    "an infinite duration": [
        dump(result("Hi.", duration_ms=0)).replace(b'"duration_ms":0', b'"duration_ms":1e999')
    ],
    "counters beyond 64 bits": [assistant(text("Hi."), used=usage(2**70, 2**64, 2**63, 2**100))],
    "turns beyond 64 bits": [result("Hi.", num_turns=10**30)],
    "a negative window": [result("Hi.", modelUsage={MODEL: share(window=-5)})],
    "times with and without a zone": [
        assistant(call("toolu_1", "Bash"), timestamp="2026-01-01T00:00:00"),
        answer("toolu_1", timestamp="2026-01-01T00:00:01Z"),
    ],
    "the first and the last day": [
        assistant(call("toolu_1", "Bash"), timestamp="0001-01-01T00:00:00+23:59"),
        answer("toolu_1", timestamp="9999-12-31T23:59:59-23:59"),
    ],
    "a tape from beyond time": [
        b'{"schema":"steno.tape/1","started_at":1e300}',
        b'[1.0,"out","hi\\n"]',
        b'[1.0,"end",null]',
    ],
    "a tick from beyond time": [
        b'{"schema":"steno.tape/1","started_at":1.0}',
        b'[1e18,"out","hi\\n"]',
        b'[1.0,"end",null]',
    ],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_i3_extreme_values_never_abort_reading(name: str) -> None:
    lines = EXTREMES[name]
    found = report(*lines)
    assert json.loads(found.to_json())["schema"] == "steno.report/1"
    assert found.lines.read == (1 if b"steno.tape/1" in stream(*lines) else len(lines))


def test_i3_a_deep_field_never_turns_a_failure_into_something_else() -> None:
    line = dump(failed("API Error: 500", something_new="~"))
    found = {
        depth: report(init(), line.replace(b'"~"', _deep(depth)))
        for depth in [*range(400, 1100), 5000]
    }
    assert {
        depth: one.verdict
        for depth, one in found.items()
        if one.verdict not in ("api", "no_result")
    } == {}


# -- what this version does not know (I4) --------------------------------------------------------


def test_i4_unknown_kinds_are_counted_and_kept() -> None:
    strange = [
        {"type": "telepathy", "session_id": SESSION, "thought": 1},
        system("dreaming", of="sheep"),
    ]
    lines = [
        init(),
        *strange,
        assistant(text("Hi."), {"type": "hologram", "data": 1}),
        result("Hi."),
    ]
    kept = [event for event in steno.events(stream(*lines)) if isinstance(event, ev.Unknown)]
    assert [(event.line, event.kind, json.loads(event.raw)) for event in kept] == [
        (2, "telepathy", lines[1]),
        (3, "system/dreaming", lines[2]),
        (4, "block hologram", lines[3]),
    ]
    found = report(*lines)
    assert (found.verdict, found.text, found.lines) == (
        "success",
        "Hi.",
        LineCounts(read=5, unknown=3),
    )
    assert "3 events of kinds this version does not know" in found.warnings


@pytest.mark.parametrize(
    "line", [{}, {"no": "type"}, {"type": None}, {"type": 5}, {"type": ["assistant"]}]
)
def test_i4_an_object_without_a_type_is_unknown(line: Json) -> None:
    assert report(*hello(), line).lines == LineCounts(read=4, unknown=1)


def test_i4_unknown_fields_change_nothing_but_those_of_a_result_are_counted() -> None:
    lines = [{"zz_new": {"deep": [1, 2]}, **line, "aa_new": None} for line in worked()]
    found = plain(report(*lines))
    assert found["lines"]["unknown"] == 2
    found["lines"]["unknown"] = 0
    assert found["warnings"].pop() == "2 events of kinds this version does not know"
    assert found == plain(report(*worked()))


# -- key order (I5) ------------------------------------------------------------------------------


def _shuffled(value: Any, by: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(item, by) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    by.shuffle(keys)
    return {key: _shuffled(value[key], by) for key in keys}


@pytest.mark.parametrize("seed", range(20))
def test_i5_key_order_carries_no_meaning(seed: int) -> None:
    helper = {"claude-haiku-5-5": share(1, 0, 0, 1, 0.000001), **worked()[-1]["modelUsage"]}
    lines = [*worked()[:-1], {**worked()[-1], "modelUsage": helper}]
    by = random.Random(seed)
    assert plain(report(*(_shuffled(line, by) for line in lines))) == plain(report(*lines))


# -- other events that change the report ---------------------------------------------------------


def test_e1_limits_and_retries_are_reported() -> None:
    info = {
        "status": "rejected",
        "resetsAt": 1800000000,
        "rateLimitType": "five_hour",
        "isUsingOverage": False,
    }
    retry = system(
        "api_retry",
        attempt=1,
        max_retries=10,
        retry_delay_ms=512.4,
        error_status=529,
        error="overloaded",
    )
    found = report(
        init(), retry, {"type": "rate_limit_event", "rate_limit_info": info}, *hello()[1:]
    )
    assert found.limits == RateLimitStatus("rejected", 1800000000, "five_hour", None)
    assert [(note.attempt, note.status, note.error, note.delay_ms) for note in found.retries] == [
        (1, 529, "overloaded", 512)
    ]


def test_e1_heartbeats_belong_to_the_main_thread() -> None:
    beat = {
        "type": "tool_progress",
        "tool_use_id": "toolu_1-heartbeat-0",
        "parent_tool_use_id": "toolu_1",
        "heartbeat": True,
    }
    found = report(init(), assistant(call("toolu_1", "Bash")), beat, answer("toolu_1"), result())
    assert (found.subagents, found.background, found.lines.unknown) == ([], [], 0)


def test_e1_a_command_moved_to_the_background_is_background_work() -> None:
    moved = {
        "stdout": "",
        "stderr": "",
        "interrupted": False,
        "backgroundTaskId": "b1",
        "timedOutAfterMs": 1000,
    }
    lines = [
        init(),
        assistant(call("toolu_1", "Bash", command="make")),
        answer("toolu_1", tool_use_result=moved),
        result(),
    ]
    assert report(*lines).background == [BackgroundTask("toolu_1", "shell", None, "running")]


def _files(*lines: Json) -> list[tuple[str, str, bool]]:
    return [(file.path, file.change, file.inside) for file in report(*lines).files]


def test_w2_a_file_changes_when_the_result_says_so() -> None:
    write = assistant(call("toolu_1", "Write", file_path=f"{CWD}/a.txt", content="a"))
    assert _files(init(), write) == []
    assert _files(init(), write, answer("toolu_1", "no", True)) == []
    assert _files(init(), write, answer("toolu_1")) == [("a.txt", "modified", True)]
    made = answer("toolu_1", tool_use_result={"type": "create", "filePath": f"{CWD}/a.txt"})
    assert _files(init(), write, made) == [("a.txt", "created", True)]


@pytest.mark.parametrize(
    ("path", "shown", "inside"),
    [
        (f"{CWD}/a/b.txt", "a/b.txt", True),
        ("a/b.txt", "a/b.txt", True),
        (f"{CWD}2/b.txt", f"{CWD}2/b.txt", False),
        (f"{CWD}/../b.txt", "/srv/b.txt", False),
        ("/etc/hosts", "/etc/hosts", False),
    ],
)
def test_w4_containment_is_true_containment(path: str, shown: str, inside: bool) -> None:
    edit = assistant(call("toolu_1", "Edit", file_path=path, old_string="a", new_string="b"))
    assert _files(init(), edit, answer("toolu_1")) == [(shown, "modified", inside)]


@pytest.mark.parametrize("cwd", ["", None, 5])
def test_w4_without_a_known_folder_nothing_is_inside(cwd: Any) -> None:
    edit = assistant(call("toolu_1", "Edit", file_path="/srv/a.txt"))
    assert _files(init(cwd=cwd), edit, answer("toolu_1")) == [("/srv/a.txt", "modified", False)]


def test_s_the_names_of_the_report_are_fixed() -> None:
    names = (
        "schema source agent agent_version model session_id run_id name tags origin setup cwd "
        "api_key_source verdict ok succeeded "
        "error reason error_category hint evidence warnings text result structured_output "
        "subtype terminal_reason stop_reason exit_code signal complete turns requests started_at "
        "duration_ms duration_api_ms tokens cache_hit_rate cache_write_1h web_searches web_fetches "
        "service_tier cost models context tools tool_counts files denials subagents background "
        "retries limits lines"
    )
    value = json.loads(Report().to_json())
    assert " ".join(value) == names
    assert list(value["tokens"]) == [
        "input",
        "cache_write",
        "cache_read",
        "output",
        "reasoning",
        "total",
    ]
    assert list(value["lines"]) == ["read", "blank", "malformed", "not_object", "unknown", "torn"]
