"""The lane on public data: its list, how it finds recordings, and its second reader."""

import json
import re
from pathlib import Path

import pytest

import steno
from tests import drift
from tests.public_data.__main__ import load
from tests.public_data.check import with_subagents
from tests.public_data.find import Found, classify, find, objects_in
from tests.raw_counts import NAMES, Object, count, mapping

ROOT = Path(__file__).parents[1]
RECORDINGS = ROOT / "tests" / "recordings"
# One recording of each format, with its agent; the last is that of an agent that is not read.
FORMATS: dict[str, list[dict[str, object]]] = {
    "claude stream": [{"type": "system", "subtype": "init", "session_id": "s"}],
    "claude transcript": [{"type": "user", "sessionId": "s", "uuid": "u", "message": {"a": 1}}],
    "codex stream": [{"type": "turn.started"}],
    "codex transcript": [{"type": "session_meta", "payload": {"id": "t"}}],
    "copilot transcript": [{"type": "session.start", "id": "i", "data": {}}],
    "gemini stream": [{"type": "init", "session_id": "s", "model": "m"}],
    "gemini chat": [{"sessionId": "s", "projectHash": "h", "messages": []}],
    "opencode stream": [{"type": "step_start", "sessionID": "ses_1", "part": {}}],
    "qwen transcript": [{"type": "user", "sessionId": "s", "uuid": "u", "message": {"parts": []}}],
    "pi other": [{"type": "session", "version": 3, "id": "i", "cwd": "/w"}],
}


def test_the_list_names_commits_and_licences() -> None:
    repositories = load()
    assert len({repository.name for repository in repositories}) == len(repositories) > 50
    for repository in repositories:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", repository.name)
        assert re.fullmatch(r"[0-9a-f]{40}", repository.commit), repository.name
        assert repository.licence, repository.name


@pytest.mark.parametrize("expected", FORMATS)
def test_each_format_is_told_apart(expected: str) -> None:
    """Wherever it begins: on lines, in an indented array, between other text."""
    values = FORMATS[expected]
    lines = "\n".join(json.dumps(value) for value in values)
    array = json.dumps(values, indent=2)
    for text in (lines, array, f"npm notice\n{lines}\ndone", f"npm notice\n{array}\ndone"):
        assert classify(list(objects_in(text))) == tuple(expected.split())


def test_what_quotes_no_agent_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module", "name": "x"}')
    (tmp_path / "data.jsonl").write_text('{"type": "user", "message": {"content": "Hi."}}\n')
    (tmp_path / "script").write_text('#!/bin/sh\necho <<E\n{"type": "turn.started"}\nE\n')
    assert list(find(tmp_path)) == []


TRANSCRIPTS = [
    found
    for found in find(RECORDINGS / "transcripts")
    if found.kind == "transcript" and found.agent in ("claude", "codex")
]


@pytest.mark.parametrize("found", TRANSCRIPTS, ids=lambda f: str(f.path.relative_to(RECORDINGS)))
def test_the_second_reader_agrees_on_our_own_transcripts(found: Found) -> None:
    objects = with_subagents(found)
    if ids_are_reused(objects):
        pytest.skip("the scripted model gave the same id to two messages")
    report = steno.read(found.path)
    counts = count(found.agent, found.kind, objects)
    assert counts is not None
    if counts.tokens is not None:
        assert {name: getattr(report.tokens, name) for name in NAMES} == counts.tokens
    assert (report.requests, len(report.tools)) == (counts.requests or 0, counts.calls)


def ids_are_reused(objects: list[Object]) -> bool:
    """Whether lines of one message differ in their input."""
    inputs: dict[str, set[int]] = {}
    for message in (mapping(value, "message") for value in objects):
        if "id" in message:
            usage = mapping(message, "usage")
            inputs.setdefault(message["id"], set()).add(usage.get("input_tokens", 0))
    return any(len(different) > 1 for different in inputs.values())


def test_drift_tries_the_versions_of_the_page() -> None:
    """A version that is once in the table stays; the newest one is added to the list."""
    rows = json.loads((ROOT / "docs" / "reference" / "versions.json").read_bytes())
    for agent, versions in drift.OLDER.items():
        listed = {row["version"] for row in rows if row["agent"] == agent}
        newest = max(listed, key=drift.version_tuple)
        assert listed - {newest} <= set(versions)
