"""What is no text, call or figure is kept too: images, titles, notes, keys of results (E3, I4)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

import steno
from steno import event as ev
from steno.export.conversation import Conversation, read_conversation
from steno.export.html import MAX_IMAGE_CHARS, html_page
from steno.export.text import transcript_lines
from steno.recording.open import open_recording
from steno.views.table import PageStyle
from tests.agent_cases import dump
from tests.golden import ROOT

Json = dict[str, Any]
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
DATA_URL = f"data:image/png;base64,{PNG}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": PNG}
CLAUDE_IMAGE = {"type": "image", "source": SOURCE}
CLAUDE = {"session_id": "s1", "parent_tool_use_id": None}


def claude(kind: str, *blocks: Any, **fields: Any) -> Json:
    content = list(blocks)
    message: Json = {"role": kind, "content": content}
    if kind == "assistant":
        usage = {"input_tokens": 2, "output_tokens": 3}
        message |= {"id": "m1", "model": "claude-opus-5-5", "usage": usage}
    return {"type": kind, "message": message, **CLAUDE, **fields}


def call(name: str = "Bash", id_: str = "c1") -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": {}}


def result(content: Any = "out", id_: str = "c1") -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content}


def events(lines: list[Json]) -> list[ev.Event]:
    return list(steno.events(dump(lines)))


def conversation(lines: list[Json]) -> Conversation:
    return read_conversation(open_recording(dump(lines), "made"))


def transcript(lines: list[Json]) -> str:
    with conversation(lines) as made:
        return "\n".join(transcript_lines(made, PageStyle(100, 100)))


def html(lines: list[Json], is_full: bool = False) -> str:
    with conversation(lines) as made:
        return "".join(html_page(made, is_full))


# -- images ----------------------------------------------------------------------------------------


def rewritten(case: str, change: Callable[[Json], None]) -> list[Json]:
    """The lines of a recording, each after a change."""
    path = next((ROOT / case).glob("*.jsonl"), ROOT / case / "stdout")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    for line in lines:
        change(line)
    return lines


def codex_output(line: Json) -> None:
    payload = line.get("payload", {})
    if payload.get("type", "").endswith("_call_output"):
        payload["output"] = [{"type": "input_image", "image_url": DATA_URL}]


def codex_prompt(line: Json) -> None:
    payload = line.get("payload", {})
    if payload.get("item", {}).get("type") == "UserMessage":
        payload["item"]["content"].append({"type": "image", "image_url": DATA_URL})


def copilot_result(line: Json) -> None:
    if line["type"] == "tool.execution_complete":
        line["data"]["result"] = {
            "content": "seen",
            "contents": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
        }


def copilot_prompt(line: Json) -> None:
    if line["type"] == "user.message":
        line["data"]["attachments"] = [{"type": "blob", "data": PNG, "mimeType": "image/png"}]


def opencode_result(line: Json) -> None:
    if line["type"] == "tool_use":
        line["part"]["state"]["attachments"] = [{"mime": "image/png", "url": DATA_URL}]


def gemini_prompt(line: Json) -> None:
    if line.get("type") == "user":
        line["content"] = [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]


def qwen_prompt(line: Json) -> None:
    if line.get("type") == "user":
        line["message"]["parts"] = [
            "look",
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
        ]


IMAGES = {
    "claude prompt": [claude("user", {"type": "text", "text": "look"}, CLAUDE_IMAGE)],
    "claude result": [
        claude("assistant", call()),
        claude("user", result([{"type": "text", "text": "seen"}, CLAUDE_IMAGE])),
    ],
    "claude read": [
        claude("assistant", call("Read")),
        claude(
            "user",
            result("seen"),
            tool_use_result={"type": "image", "file": {"base64": PNG, "type": "image/png"}},
        ),
    ],
    "codex output": rewritten("transcripts/codex-0.166.0/sandbox", codex_output),
    "codex prompt": rewritten("transcripts/codex-0.166.0/resumed", codex_prompt),
    "copilot result": rewritten("copilot/1.0.102/tools_kept", copilot_result),
    "copilot prompt": rewritten("copilot/1.0.102/tools_kept", copilot_prompt),
    "opencode result": rewritten("opencode/1.18.33/tools", opencode_result),
    "gemini prompt": rewritten("transcripts/gemini-0.61.0/tools", gemini_prompt),
    "qwen prompt": rewritten("transcripts/qwen-0.15.10/permission_denied", qwen_prompt),
}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_shown_in_html_and_kept_in_the_events(name: str) -> None:
    lines = IMAGES[name]
    assert f'<img src="{DATA_URL}" alt="image/png">' in html(lines)
    assert PNG in json.dumps([json.loads(encode(event)) for event in events(lines)])


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_a_placeholder_in_texts(name: str) -> None:
    text = transcript(IMAGES[name])
    assert "[image/png, 70 bytes]" in text
    assert PNG[:40] not in text


BAD_IMAGES = {
    "another form": ("image/svg+xml", "PHN2Zz48L3N2Zz4="),
    "no form": ("text/html", PNG),
    "breaks out of the attribute": ("image/png", 'AAAA" onerror="alert(1)'),
    "a form that breaks out": ('image/png" onerror="alert(1)', PNG),
    "too large": ("image/png", "A" * (MAX_IMAGE_CHARS + 4)),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_only_harmless_images_of_bounded_size_are_shown(name: str) -> None:
    media_type, data = BAD_IMAGES[name]
    source = {"type": "base64", "media_type": media_type, "data": data}
    page = html([claude("user", {"type": "image", "source": source})])
    assert "<img" not in page
    assert 'onerror="' not in page


def test_the_images_of_a_file_are_bounded_together() -> None:
    data = "A" * MAX_IMAGE_CHARS
    source = {"type": "base64", "media_type": "image/png", "data": data}
    lines = [claude("user", {"type": "image", "source": source}) for _ in range(6)]
    assert html(lines).count("<img") == 4
    assert html(lines, is_full=True).count("<img") == 6


# -- lines and blocks of other kinds ---------------------------------------------------------------

NOTES: dict[str, tuple[Json, tuple[str, str | None]]] = {
    "a system line without a subtype": (
        {"type": "system", "content": "the disk is full", **CLAUDE},
        ("system", "the disk is full"),
    ),
    "a title": (
        {"type": "summary", "summary": "Fix the tests", "leafUuid": "u1"},
        ("summary", "Fix the tests"),
    ),
    "a title by the user": (
        {"type": "custom-title", "customTitle": "My work", "sessionId": "s1"},
        ("custom_title", "My work"),
    ),
    "a new conversation": (
        {"type": "conversation_reset", "new_conversation_id": "n1", **CLAUDE},
        ("conversation_reset", "n1"),
    ),
    "a new conversation as a system line": (
        {"type": "system", "subtype": "conversation_reset", **CLAUDE},
        ("conversation_reset", None),
    ),
    "an answer to a request": (
        {"type": "control_response", "response": {"subtype": "error", "error": "not possible"}},
        ("control_response", "not possible"),
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_notes_of_claude_code_are_known(name: str) -> None:
    line, expected = NOTES[name]
    lines = [claude("assistant", {"type": "text", "text": "Hi."}), line]
    found = [(event.kind, event.text) for event in events(lines) if isinstance(event, ev.Notice)]
    assert found == [expected]
    assert not expected[1] or expected[1] in transcript(lines)
    assert steno.read(dump(lines)).lines.unknown == 0


def test_strings_and_other_values_in_the_place_of_blocks() -> None:
    lines = [claude("assistant", "Hello.", {"type": "text", "text": "World."}, 3)]
    report = steno.read(dump(lines))
    assert (report.text, report.lines.unknown) == ("Hello.\nWorld.", 2)
    kinds = [event.kind for event in events(lines) if isinstance(event, ev.Unknown)]
    assert kinds == ["block string", "block value"]


@pytest.mark.parametrize(
    ("content", "text", "unknown"),
    [({"type": "text", "text": "Hi."}, "Hi.", 0), (5, "", 1), ({"type": "new"}, "", 1)],
)
def test_a_content_that_is_no_list(content: Any, text: str, unknown: int) -> None:
    line = claude("assistant")
    line["message"]["content"] = content
    report = steno.read(dump([line]))
    assert (report.text, report.lines.unknown) == (text, unknown)


def test_a_string_in_the_place_of_a_users_block_is_a_prompt() -> None:
    found = [event for event in events([claude("user", "do it")]) if event.line]
    assert [(type(event).__name__, getattr(event, "text", None)) for event in found] == [
        ("UserMessage", "do it"),
        ("Unknown", None),
    ]


def test_a_block_of_an_unknown_kind_is_shown() -> None:
    assert "a secret of the future" in transcript(
        [claude("assistant", {"type": "hologram", "shape": "a secret of the future"})]
    )


def test_a_part_of_a_result_of_an_unknown_kind_is_shown() -> None:
    parts = [{"type": "hologram", "shape": "of the future"}]
    text = transcript([claude("assistant", call()), claude("user", result(parts))])
    assert '[hologram] {"shape":"of the future"}' in text


def test_a_result_without_its_call_is_shown() -> None:
    lines = [claude("user", result("the output", "gone")), claude("user", result("", "gone"))]
    text = transcript(lines)
    assert text.count("unknown call") == 1
    assert "the output" in text


def test_a_prompt_sent_while_the_model_works_is_in_the_transcript() -> None:
    transcript_head = {"sessionId": "s1", "version": "2.1.325", "cwd": "/p", "uuid": "u1"}
    lines = [
        {"type": "user", "message": {"role": "user", "content": "go"}, **transcript_head},
        {
            "type": "attachment",
            "attachment": {"type": "queued_command", "prompt": "and the tests"},
            **transcript_head,
        },
        {
            "type": "attachment",
            "attachment": {"type": "hook_success", "hookName": "Stop", "stdout": "all good"},
            **transcript_head,
        },
    ]
    found = [
        (event.kind, event.text) if isinstance(event, ev.UserMessage) else event.output
        for event in events(lines)
        if isinstance(event, ev.UserMessage | ev.Hook)
    ]
    assert found == [("prompt", "go"), ("sent", "and the tests"), "all good"]


def test_the_output_of_a_hook_that_failed_is_shown() -> None:
    hook = {"type": "system", "subtype": "hook_response", "hook_name": "Stop", **CLAUDE}
    line = {**hook, "exit_code": 2, "outcome": "error", "output": "lint failed"}
    assert "lint failed" in transcript([line])


# -- structured results ----------------------------------------------------------------------------


def test_new_keys_of_a_typed_result_are_kept_and_the_id_of_its_line() -> None:
    printed = {"stdout": "a", "interrupted": False, "extra": "odd", "hologram": {"depth": 3}}
    lines = [
        claude("assistant", call()),
        claude("user", result(), tool_use_result=printed, uuid="u7"),
    ]
    (found,) = (event for event in events(lines) if isinstance(event, ev.ToolResult))
    assert isinstance(found.output, ev.ToolResultDetails)
    assert found.uuid == "u7"
    assert json.loads(encode(found))["output"] == {
        "stdout": "a",
        "interrupted": False,
        "extra": {"extra": "odd", "hologram": {"depth": 3}},
    }


def test_new_keys_of_a_notebook_edit_are_kept() -> None:
    printed = {"notebook_path": "/p/n.ipynb", "edit_mode": "replace", "error": "", "cell_id": "c"}
    lines = [
        claude("assistant", {**call("NotebookEdit"), "input": {"notebook_path": "/p/n.ipynb"}}),
        claude("user", result(), tool_use_result=printed),
    ]
    (found,) = (event for event in events(lines) if isinstance(event, ev.ToolResult))
    assert isinstance(found.output, ev.ToolResultDetails)
    assert {name: bytes(raw) for name, raw in found.output.extra.items()} == {"cell_id": b'"c"'}


STRUCTURED = {
    "copilot/1.0.102/tools_kept": b'"detailedContent"',
    "opencode/1.18.33/tools": b'"metadata"',
    "transcripts/gemini-0.61.0/tools": b'"functionResponse"',
    "transcripts/qwen-0.15.10/permission_denied": b'"errorType"',
}


@pytest.mark.parametrize("case", STRUCTURED)
def test_structured_results_of_other_agents_are_kept_as_they_are(case: str) -> None:
    outputs = [
        bytes(event.output)
        for event in steno.events(_file(case))
        if isinstance(event, ev.ToolResult) and isinstance(event.output, Raw)
    ]
    assert any(STRUCTURED[case] in output for output in outputs)


def _file(case: str) -> Path:
    return next((ROOT / case).glob("*.jsonl"), ROOT / case)
