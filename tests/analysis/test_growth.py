"""Work grows with the length of a stream, not with its square. Counted, not timed."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from itertools import product
from types import FrameType
from typing import Any

import pytest
from benchmarks.shapes import RECORDED, SHAPES, recording, stream

import steno
from steno import event as ev
from steno.agents import AGENTS, CLAUDE
from steno.analysis.accumulator import Accumulator
from steno.analysis.attribution import ATTRIBUTION_WINDOW_MS, CallSpan, CallTimes
from steno.analysis.live_state import ContextAlerts, LiveState
from steno.codec.decode import decode_lenient, iter_json_values
from steno.recording.open import open_recording
from steno.recording.parse import RunParser
from steno.workspace.changes import Change, ChangeTracker, merge_git_changes

COUNT = 200
SMALL = 30  # of what is repeated; the other size is four times that


def executed(work: Callable[[], object]) -> int:
    """The number of bytecode instructions, the same in each run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(outer)
    return count


def growth(work: Callable[[int], Callable[[], object]]) -> float:
    """How much more is executed for four times as much; `work` prepares it for a number."""
    work(4)()  # fills caches
    return executed(work(4 * SMALL)) / executed(work(SMALL))


def flat_price(model: str, share: Any, at: datetime | None) -> int:
    """The price table itself takes longer for the first request of each model."""
    return 1


@pytest.mark.parametrize("name", [*SHAPES, *RECORDED])
def test_four_times_the_lines_are_four_times_the_work(name: str) -> None:
    def read(count: int) -> Callable[[], object]:
        is_stream = name in SHAPES
        data = stream(SHAPES[name], count) if is_stream else recording(RECORDED[name], count)
        return lambda: open_recording(data).read().report(None, flat_price)

    assert growth(read) < 4.3


@pytest.mark.parametrize("name", SHAPES)
def test_each_look_at_an_active_run_costs_the_same(name: str) -> None:
    """The live line and the alerts look at the state after each line."""

    def watch(count: int) -> Callable[[], object]:
        lines = stream(SHAPES[name], count).splitlines(keepends=True)

        def look() -> None:
            parser = RunParser(CLAUDE)
            run = parser.accumulator
            state = LiveState(run)
            alerts = ContextAlerts(run, (0.5,))
            for line in lines:
                for event in parser.parse_line(line):
                    run.add((event,))
                    alerts.check(event)
                looked = (state.state, state.current_tool, state.turns, state.context)
                assert len(looked) == 4

        return look

    assert growth(watch) < 4.3


@pytest.mark.parametrize("name", RECORDED)
def test_each_change_is_attributed_at_the_same_cost(name: str) -> None:
    def track(count: int) -> Callable[[], object]:
        events = [*steno.events(recording(RECORDED[name], count))]

        def add() -> None:
            tracker = ChangeTracker()
            for event in events:
                tracker.add(event)
            tracker.all_changes()

        return add

    assert growth(track) < 4.3


def test_a_report_lists_the_results_as_often_for_many_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In versions without modelUsage it listed them once per request."""
    results: property = Accumulator.__dict__["results"]
    listed: list[Accumulator] = []

    def count_access(run: Accumulator) -> object:
        listed.append(run)
        return results.__get__(run)

    monkeypatch.setattr(Accumulator, "results", property(count_access))
    counts = []
    for count in (3, COUNT):
        listed.clear()
        steno.read(stream(SHAPES["turns without model usage"], count))
        counts.append(len(listed))
    assert counts[0] == counts[1]


def test_repeated_changes_of_a_file_are_not_compared_with_each_other() -> None:
    """A transcript repeats the changes that the stream has reported."""
    run = Accumulator(CLAUDE)
    calls = [CountedText(f"c{number}") for number in range(COUNT)]
    for line in (1, 0):
        CountedText.comparisons = 0
        run.add(ev.FileChanged(line, None, None, None, "a.py", "modified", call) for call in calls)
    (file,) = run.files.attributed([])
    assert (file.tools, CountedText.comparisons <= COUNT) == (calls, True)


def test_background_tasks_end_in_their_order() -> None:
    """Each result that answers one more task than have ended ends the oldest that runs."""
    run = Accumulator(CLAUDE)
    for task in ("b1", "b2", "b3"):
        run.add([ev.TaskStarted(1, None, None, None, task, task, "shell", None, None, True)])
    run.add([ev.TaskEnded(2, None, None, None, "b2", "b2", "killed")])
    run.add([ev.TaskEnded(3, None, None, None, "b2", "b2", "completed")])
    answers = [ev.Result(4, None, None, None, uuid=f"u{n}", answers_task=True) for n in range(2)]
    run.add([*answers, answers[1]])  # the second one is repeated
    assert {task.id: task.status for task in run.background.values()} == {
        "b1": "ended",
        "b2": "completed",
        "b3": "running",
    }
    run.add([ev.StopRequested(5, None, None, None, "timeout", 2)])
    assert run.facts.background_at_stop == {"b3"}


KINDS = ("shell", "file_edit", "file_read")


def call_at(spans: list[CallSpan], at: float) -> str | None:
    """What `CallTimes.call_at` gives, with a look at each span."""
    writers = [span for span in spans if span.kind != "file_read"]
    running = [span for span in writers if span.started_ms <= at <= span.ended_ms]
    running = [span for span in running if span.kind == "shell"] or running
    if running:
        return running[0].call_id if len(running) == 1 else None
    window = ATTRIBUTION_WINDOW_MS
    ended = [(s.ended_ms, s.call_id) for s in writers if s.ended_ms <= at <= s.ended_ms + window]
    next_ = [
        (s.started_ms, s.call_id) for s in writers if s.started_ms - window <= at < s.started_ms
    ]
    return max(ended)[1] if ended else min(next_)[1] if next_ else None


@pytest.mark.parametrize("spread", [150, 700])
def test_calls_are_found_by_time(spread: int) -> None:
    shapes = product(KINDS, (0, 1, 2.5), (1, 3, float("inf")))
    spans = [
        CallSpan(f"c{number:02}", kind, spread * start * number % 4000, 0)
        for number, (kind, start, _) in enumerate(shapes)
    ]
    lengths = [spread * length for _, _, length in product(KINDS, (0, 1, 2.5), (1, 3, 0))]
    spans = [
        span._replace(ended_ms=span.started_ms + length)
        for span, length in zip(spans, lengths, strict=True)
    ]
    for chosen in (
        spans,
        spans[::2],
        spans[::5],
        spans[:1],
        [],
        [spans[1]._replace(ended_ms=9e99)],
    ):
        times = CallTimes(chosen)
        for at in range(-700, 9000, 50):
            assert times.call_at(at) == call_at(chosen, at)


def test_renames_of_git_replace_what_is_known() -> None:
    known = [
        Change(path="a", change="deleted", source="tool", call="c1"),
        Change(path="b", change="created", source="filesystem", call="c2"),
        Change(path="kept", change="modified", source="tool"),
    ]
    renames = [
        Change(path="b", was="a", change="renamed", source="git"),
        Change(path="d", was="b", change="renamed", source="git"),
        Change(path="f", was="e", change="renamed", source="git"),
        Change(path="new", change="created", source="git"),
        Change(path="kept", change="modified", source="git", added=3),
    ]
    merged = merge_git_changes(known, renames)
    assert [(change.was, change.path, change.call, change.added) for change in merged] == [
        ("a", "b", "c2", None),
        (None, "kept", None, 3),
        ("b", "d", "c2", None),
        ("e", "f", None, None),
        (None, "new", None, None),
    ]


def test_renames_are_merged_at_the_same_cost() -> None:
    def merge(count: int) -> Callable[[], object]:
        names = [str(number) for number in range(count)]
        known = [Change(path=name, change="deleted", source="tool") for name in names]
        renames = [
            Change(path=f"new {name}", was=name, change="renamed", source="git") for name in names
        ]
        return lambda: merge_git_changes(known, renames)

    assert growth(merge) < 4.3


def test_the_rollout_of_codex_is_matched_at_the_same_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and denials of a stream are looked for among those of its rollout."""
    monkeypatch.setattr("steno.agents.codex.enrich.MAX_CALLS_APART", 4)

    def enrich(count: int) -> Callable[[], object]:
        printed: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": "s"}]
        kept: list[dict[str, Any]] = [
            rollout("session_meta", id="s", cwd="/w", cli_version="0.80.0"),
            rollout("event_msg", type="user_message", message="go"),
        ]
        for number in range(count):
            item = {"id": f"item_{number}", "type": "command_execution", "command": f"run {number}"}
            printed.append({"type": "item.started", "item": {**item, "status": "in_progress"}})
            head = {"call_id": f"c{number}"}
            for name in ("other", "exec_command"):
                arguments = json.dumps({"cmd": f"{name} {number}"})
                call = {**head, "call_id": f"{name}{number}", "name": name, "arguments": arguments}
                kept.append(rollout("response_item", type="function_call", **call))
            refused = {"call_id": f"other{number}", "output": "rejected by user"}
            kept.append(rollout("response_item", type="function_call_output", **refused))

        def read() -> object:
            reader = AGENTS["codex"].reader()
            for number, line in enumerate(printed, 1):
                reader.read(json.dumps(line).encode(), number)
            found = reader.enrich(json.dumps(line).encode() for line in kept)  # type: ignore[attr-defined]
            assert len(found) > count
            return found

        return read

    assert growth(enrich) < 4.5


def rollout(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def test_the_results_of_qwen_are_compared_with_a_sum() -> None:
    def read(count: int) -> Callable[[], object]:
        data = stream(SHAPES["turns"], count)
        return lambda: steno.read(data, agent="qwen")

    assert growth(read) < 4.3


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
