"""Unknown kinds of lines of every agent: the report stays right, and they are counted (I4).

One line in twenty is of an unknown kind. Only line numbers and counts may differ.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden import ROOT, expected, reports
from tests.support import program

SIGNED = {"session_id": "", "uuid": "00000000-0000-4000-8000-000000000000"}
NEW: dict[str, list[dict[str, Any]]] = {
    "claude/2.1.325/multi_tool_edit": [
        {"type": "hologram", "shape": {"depth": 3}, **SIGNED},
        {"type": "system", "subtype": "hologram_ready", "tokens": 12, **SIGNED},
    ],
    "codex/0.166.0-gpt-5.5/command_exec": [
        {"type": "turn.hologram", "usage": {"input_tokens": 999_999}},
        {"type": "item.completed", "item": {"id": "item_77", "type": "hologram", "text": "no"}},
    ],
    "copilot/1.0.102/tools_kept": [
        {"type": "session.hologram", "data": {"tokens": 5}, "id": "x1"},
        {"type": "hologram", "data": {"content": "no"}, "id": "x2", "ephemeral": True},
    ],
    "gemini/0.61.0/tools": [{"type": "hologram", "content": "no"}],
    "gemini/0.61.0/success": [{"type": "hologram", "content": "no"}],
    "opencode/1.18.33/tools": [{"type": "hologram", "part": {"text": "no"}}],
    "qwen/0.15.10/tools": [
        {"type": "hologram", **SIGNED},
        {"type": "system", "subtype": "hologram_ready", **SIGNED},
    ],
}


def mixed(case: str, folder: Path) -> tuple[list[int], int]:
    """Copy a recording with unknown lines added; the new positions and the number added."""
    shutil.copytree(ROOT / case, folder)
    old = (folder / "stdout").read_bytes().splitlines(keepends=True)
    many = math.ceil(len(old) / 19)
    after = [math.ceil((number + 1) * len(old) / (many + 1)) for number in range(many)]
    lines, places = list[bytes](), list[int]()
    for number, line in enumerate(old, 1):
        lines.append(line)
        places.append(len(lines))
        if number in after:
            lines.append(_new(case, after.index(number), json.loads(line)))
    (folder / "stdout").write_bytes(b"".join(lines))
    return places, many


def _new(case: str, number: int, before: dict[str, Any]) -> bytes:
    """A line of a new kind, signed and dated as the line before it."""
    signed = {
        name: before[name] for name in ("session_id", "sessionID", "timestamp") if name in before
    }
    return json.dumps({**NEW[case][number % len(NEW[case])], **signed}).encode() + b"\n"


@pytest.mark.parametrize("case", NEW)
def test_new_kinds_change_nothing_but_their_count(case: str, tmp_path: Path) -> None:
    places, many = mixed(case, tmp_path / "recording")
    (found,) = reports(tmp_path / "recording")
    (right,) = expected(ROOT / case)
    assert found["lines"] == {
        **right["lines"],
        "read": right["lines"]["read"] + many,
        "unknown": right["lines"]["unknown"] + many,
    }
    moved = [places[line - 1] if line else 0 for line in right["evidence"]]
    warnings = [*right["warnings"], f"{many} events of kinds this version does not know"]
    assert found == {**right, "lines": found["lines"], "evidence": moved, "warnings": warnings}


@pytest.mark.parametrize("case", NEW)
def test_the_count_is_shown(case: str, tmp_path: Path) -> None:
    _, many = mixed(case, tmp_path / "recording")
    card = program.steno(tmp_path, "show", tmp_path / "recording", cwd=tmp_path)
    assert f"{many} events of kinds this version does not know" in " ".join(card.out.split())
    report = json.loads(
        program.steno(tmp_path, "show", "--json", tmp_path / "recording", cwd=tmp_path).out
    )
    assert report["lines"]["unknown"] == many
