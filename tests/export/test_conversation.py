"""The steps of a conversation: complete, in order, redacted, in slices."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.analysis.redact_report import redact_report
from steno.export.conversation import Conversation, Step, read_conversation
from steno.pricing import price
from steno.recording.open import find_recordings, open_recording
from tests.golden import CASES, ROOT, comparable, name

CLAUDE = ROOT / "claude" / "2.1.325"


def read(source: Path | bytes) -> Conversation:
    return read_conversation(open_recording(source), price=price)


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_recording_has_its_report_and_all_its_calls(case: Path) -> None:
    """The report is the one of `steno.read`, redacted; each call of it is a step, once."""
    conversations = [read(path) for path in find_recordings(case)]
    reports = [redact_report(steno.read(path)) for path in find_recordings(case)]
    assert [comparable(one.report) for one in conversations] == list(map(comparable, reports))
    for one in conversations:
        steps = list(one)
        assert [step.number for step in steps] == list(range(1, len(one) + 1))
        calls = {step.tool.id: step.tool for step in steps if step.tool is not None}
        assert sorted(calls) == sorted(tool.id for tool in one.report.tools)
        for tool in one.report.tools:
            status = {True: "ok", False: "failed", None: None}[tool.ok]
            assert calls[tool.id].status == ("denied" if tool.denied else status)
            assert calls[tool.id].duration_ms == tool.duration_ms
        assert all(line == 0 or number for line, number in one.evidence().items() if len(one))


def test_the_steps_of_subagents_follow_their_calls() -> None:
    steps = [
        (step.kind, step.depth, step.tool.name if step.tool else step.text)
        for step in read(CLAUDE / "subagent_parallel")
    ]
    assert steps == [
        ("text", 0, "Delegating two."),
        ("tool", 0, "Task"),
        ("text", 1, "Sub A looks."),
        ("tool", 1, "Bash"),
        ("text", 1, "Sub A report: 42."),
        ("tool", 0, "Task"),
        ("text", 1, "Sub B report: 43."),
        ("text", 0, "Both are back."),
        ("task", 0, "completed: A"),
        ("text", 0, "Both are back."),
        ("task", 0, "completed: B"),
        ("text", 0, "Both are back."),
        ("result", 0, "success"),
        ("result", 0, "success"),
        ("result", 0, "success"),
    ]


def test_slices_are_parts_of_the_whole() -> None:
    conversation = read(CLAUDE / "multi_tool_edit")
    whole = list(conversation)
    assert list(conversation.slice(1, 5)) + list(conversation.slice(6, 100)) == whole
    assert list(conversation.slice(-3, 2)) == whole[:2]
    assert list(conversation.slice(len(whole) + 1, 5)) == []


def test_an_edit_shows_its_patch_and_a_denied_call_its_rule() -> None:
    edit = next(step.tool for step in read(CLAUDE / "multi_tool_edit") if _is(step, "Edit"))
    assert edit is not None
    assert edit.patch == (
        "@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a + b\n+    return a + b  # sum\n"
    )
    assert [(file.path, file.change) for file in edit.files] == [("src/app.py", "modified")]
    denied = next(step.tool for step in read(CLAUDE / "permission_denied") if _is(step, "Bash"))
    assert denied is not None
    assert (denied.status, denied.allow_rule) == ("denied", "Bash(rm -rf build)")


def _is(step: Step, tool: str) -> bool:
    return step.tool is not None and step.tool.name == tool


def test_evidence_leads_to_the_step() -> None:
    conversation = read(CLAUDE / "permission_denied")
    assert conversation.evidence() == {5: 2, 7: 3}


def test_secrets_are_masked_in_every_field() -> None:
    key = "sk-ant-" + "api03-" + "b3" * 40
    data = lines(
        {
            "type": "assistant",
            "session_id": "s",
            "uuid": "u",
            "message": {
                "id": "m",
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": f"use {key}"},
                    {"type": "text", "text": f"the key is {key}"},
                    {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": key}},
                ],
            },
        },
        {
            "type": "user",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": key}],
            },
        },
    )
    steps = list(read(data))
    assert [step.kind for step in steps] == ["thinking", "text", "tool"]
    assert key not in repr(steps)
    assert repr(steps).count("[redacted]") == 5  # with the summary of the input


def test_memory_holds_no_texts() -> None:
    """40 MB of outputs take less than a quarter of that; any slice is read from the file."""
    import tracemalloc

    def stream(count: int) -> Iterator[bytes]:
        for number in range(count):
            call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}
            result = {
                "type": "tool_result",
                "tool_use_id": f"t{number}",
                "content": f"{number} " + "x" * 20_000,
            }
            message = {"id": f"m{number}", "role": "assistant", "content": [call]}
            yield lines(
                {"type": "assistant", "session_id": "s", "uuid": f"u{number}", "message": message}
            )
            yield lines({"type": "user", "message": {"role": "user", "content": [result]}})

    tracemalloc.start()
    try:
        conversation = read_conversation(open_recording(stream(2000)))
        (step,) = conversation.slice(1500, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert step.tool is not None
    assert step.tool.output[:5] == "1499 "
    assert len(conversation) == 2000
    assert peak < 10_000_000
