"""Every text that an agent printed for a person is in the events (house rule: nothing is dropped).

A text is a string with a space in it, or one under a key that texts have. The lines are read
without steno; each text must be found in `show --events`. What need not be found is in EXCEPTIONS,
each with its reason.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno.recording.open import find_recordings, open_path
from steno.recording.parse import RunParser
from tests.golden import ROOT

TEXT_KEYS = {
    *(
        "text",
        "thinking",
        "content",
        "delta",
        "partial_json",
        "chunk",
        "prompt",
        "summary",
        "title",
    ),
    *("output", "stdout", "stderr", "result", "description", "command"),
    *("error", "errors", "message", "reason"),
}
PROGRAM_CONTEXT = "what the program tells the model beside the prompt"
REPEATED = "another line of the same run has it whole"
LABEL = "a label that the program makes from the input of a call"
HEADLINE = "the event has the message in it"
CODE = "a word that the program uses as a code"
# Agent, path of the keys (lists as [], JSON in a string as $), reason.
EXCEPTIONS = (
    ("claude", "event.delta.partial_json", REPEATED),
    ("claude", "errorDetails", HEADLINE),
    ("claude", "error.message", HEADLINE),
    ("claude", "hookInfos.[].command", "a setting"),
    ("claude", "content", "of a queued prompt or a compaction: " + REPEATED),
    ("codex", "msg.chunk", "in base64: " + REPEATED),
    ("codex", "msg.unified_diff", REPEATED),
    ("codex", "payload.item.changes.*", REPEATED),
    ("codex", "payload.item.command.[]", REPEATED),
    ("codex", "payload.summary", "a setting"),
    ("copilot", "data.transformedContent", PROGRAM_CONTEXT),
    ("copilot", "data.skills.[].description", PROGRAM_CONTEXT),
    ("copilot", "data.toolRequests.[].intentionSummary", LABEL),
    ("copilot", "data.toolRequests.[].toolTitle", LABEL),
    ("copilot", "data.toolTitle", LABEL),
    ("copilot", "data.permissionRequest.*", REPEATED),
    ("copilot", "data.promptRequest.*", REPEATED),
    ("copilot", "data.agentDisplayName", LABEL),
    ("copilot", "data.result", CODE),
    ("gemini", "$set.messages.*", REPEATED),
    ("gemini", "toolCalls.[].description", LABEL),
    ("opencode", "error.data.responseBody", HEADLINE),
    ("opencode", "error.data.responseHeaders.*", HEADLINE),
    ("qwen", "event.*", REPEATED),
)
_TAG = re.compile(r"</?[a-z][a-z_-]*>")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What Codex writes in front of an output: the event has the code and the time as fields.
_CODEX_HEADER = re.compile(
    r"\A(?:Command: .*\n|Chunk ID: .*\n)*(?:(?:Exit code|Wall time|Process |Total output lines|"
    r"Original token|Script |Warning: truncated).*\n)+(?:Output:\n?)?"
)
_CODEX_WRAPPED = re.compile(r'\A\{"(?:output|metadata|chunk_id)"')
# What Codex says in the user's name, and in front of the reason for a retry.
_CODEX_OWN_TEXT = re.compile(r"\s*(?:<[\w ]+>|# AGENTS\.md instructions)")
_CODEX_RETRY = re.compile(
    r"\A(?:Reconnecting\.\.\. \d+/\d+ \(?|stream error: )|; retrying \d+/\d+ in [\d.]+m?s….*\Z"
)
_TASK_REPORT = re.compile(r"<(summary|result)>(.*?)</\1>", re.S)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The strings in a JSON value, each with the path of its keys."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, (*path, "[]"))
    elif isinstance(value, str):
        yield ".".join(path), re.sub("[\ud800-\udfff]", "\ufffd", value)


def objects(data: bytes) -> Iterator[Any]:
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
        yield from value if isinstance(value, list) else [value]
    except ValueError:
        for line in text.split("\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue  # counted as malformed


def is_text(path: str, text: str) -> bool:
    keys = [key for key in path.split(".") if key != "[]"]
    return bool(text.strip()) and (" " in text.strip() or keys[-1] in TEXT_KEYS)


def pieces(agent: str, text: str) -> Iterator[str]:
    """The parts of a text that are to be found: without tags, colours and headers."""
    if agent == "codex":
        if _CODEX_OWN_TEXT.match(text):
            return
        text = _CODEX_RETRY.sub("", _CODEX_HEADER.sub("", text)).removesuffix(")")
        if _CODEX_WRAPPED.match(text):
            text = json.loads(text).get("output", "")
            text = _CODEX_HEADER.sub("", text)
    elif text.startswith("<task-notification>"):  # the rest are ids and counts
        text = "<br>".join(match[2] for match in _TASK_REPORT.finditer(text))
    elif agent == "gemini" and text.startswith("<session_context>"):
        return
    for piece in _TAG.split(_COLOUR.sub("", text)):
        yield piece.strip()


def is_found(agent: str, text: str, everything: str) -> bool:
    if text.strip() in everything:
        return True
    if text[:1] in "{[":
        try:
            inner = list(leaves(json.loads(text)))
        except ValueError:
            inner = []
        if inner and all(is_found(agent, part, everything) for _, part in inner):
            return True
    return all(piece in everything for piece in pieces(agent, text))


def missing_texts(path: Path) -> list[str]:
    """The texts of a recording that its events don't have, with their paths."""
    file = path / "stdout" if path.is_dir() else path
    recording = open_path(path)
    parser = RunParser()
    encode = msgspec.json.Encoder().encode
    found: dict[str, None] = {}
    for event in chain.from_iterable(recording.batches(parser)):
        found |= {text: None for _, text in leaves(json.loads(encode(event)))}
    everything = "\n".join(_TAG.sub("", _COLOUR.sub("", text)) for text in found)
    everything += "\n".join(found)
    agent = parser.agent.name
    excepted = [pattern for name, pattern, _ in EXCEPTIONS if name == agent]
    return [
        f"{place}: {text[:80]!r}"
        for place, text in chain.from_iterable(leaves(line) for line in objects(file.read_bytes()))
        if is_text(place, text)
        and not any(fnmatchcase(place, pattern) for pattern in excepted)
        and not is_found(agent, text, everything)
    ]


FOLDERS = sorted(str(folder.relative_to(ROOT)) for folder in ROOT.glob("*/*") if folder.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_is_in_the_events(folder: str) -> None:
    missing = {
        path: texts for path in find_recordings(ROOT / folder) if (texts := missing_texts(path))
    }
    assert missing == {}
