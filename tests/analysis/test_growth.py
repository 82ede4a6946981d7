"""Work grows with the length of a stream, not with its square. Counted, not timed."""

import json

import pytest

from steno import event as ev
from steno.agents import CLAUDE
from steno.analysis.accumulator import Accumulator
from steno.codec.decode import decode_lenient, iter_json_values
from steno.recording.parse import RunParser

COUNT = 200


class CountedText(str):
    """Text that counts how often it was compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedText.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def result(uuid: str | None) -> ev.Result:
    return ev.Result(0, "session", None, None, uuid=uuid and CountedText(uuid))


def test_results_are_not_compared_with_each_other() -> None:
    run = Accumulator(CLAUDE)
    CountedText.comparisons = 0
    run.add(result(f"u{number}") for number in range(COUNT))
    run.add([result(None), result(None)])
    assert (len(run.results), CountedText.comparisons) == (COUNT + 2, 0)
    run.add([result("u3"), result("u3")])
    assert run.duplicate_results == 2
    assert [one.uuid for one in run.results][-4:] == [f"u{COUNT - 1}", None, None, "u3"]
    assert CountedText.comparisons <= 4


def test_calls_are_abandoned_once() -> None:
    """A call without an answer is moved by the result of its turn, and not again by later ones."""
    run = Accumulator(CLAUDE)
    calls = [ev.ToolCall(0, None, None, None, f"c{n}", "Bash", "shell") for n in range(3)]
    run.add([*calls, result("u1")])
    assert (run.open_calls, list(run.abandoned_calls)) == ({}, ["c0", "c1", "c2"])
    run.add([ev.ToolResult(0, None, None, None, "c1", True), result("u2")])
    assert (list(run.abandoned_calls), run.failed_calls, run.orphan_results) == (
        ["c0", "c2"],
        ["c1"],
        0,
    )


def denied_results(count: int) -> bytes:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": f"t{number}",
            "is_error": True,
            "content": "Claude requested permissions to use Bash, but you haven't granted it yet.",
        }
        for number in range(count)
    ]
    metas = [
        {"id": f"t{number}", "permission_decision": {"decision": "reject"}}
        for number in range(count)
    ]
    line = {
        "type": "user",
        "session_id": "11111111-2222-4333-8444-555555555555",
        "message": {"role": "user", "content": blocks},
        "tool_result_meta": metas,
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def test_the_line_of_many_results_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = decode_lenient

    def count(data: bytes, kind: type) -> object:
        decoded.append(kind)
        return decode(data, kind)

    monkeypatch.setattr("steno.agents.claude.other_lines.decode_lenient", count)
    parser = RunParser(CLAUDE)
    parser.feed_lines([denied_results(COUNT)])
    assert len(parser.accumulator.denials) == COUNT
    assert len(decoded) == 2  # the line, and its list of decisions


def test_turns_are_counted_as_they_come() -> None:
    """Requests of the main thread: once per message, without those of subagents."""
    run = Accumulator(CLAUDE)
    heads = [(None, "m1"), (None, "m1"), ("task", "m2"), (None, "m3")]
    run.add(ev.Usage(0, None, parent, None, message, "opus") for parent, message in heads)
    assert (run.main_keys, run.model) == (["m1", "m3"], "opus")


@pytest.mark.parametrize("text", ["garbage", "steno: 1", "<html>", "=1", "\u00e4"])
def test_text_that_begins_no_value_is_not_decoded(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not JSON$"):
        list(iter_json_values(text.encode()))


@pytest.mark.parametrize("text", ['{"a":1}', "[1]", '"a"', "-1", "0", "true", "false", "null"])
def test_every_value_is_decoded(text: str) -> None:
    assert list(iter_json_values(text.encode())) == [text.encode()]
