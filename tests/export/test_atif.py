"""Conversations as ATIF trajectories, validated with the public package `atif`."""

import json
from pathlib import Path
from typing import Any

import atif
import pytest

from steno import event as ev
from steno.export.atif import atif_document
from steno.export.conversation import Conversation, read_conversation
from steno.export.steps import StepBuilder
from steno.pricing import price
from steno.recording.open import open_recording
from steno.report import Report
from tests.golden import ROOT
from tests.support import program

CLAUDE = ROOT / "claude" / "2.1.325"
RECORDINGS = sorted({path.parent for path in ROOT.glob("**/stdout")})
TRANSCRIPTS = sorted((ROOT / "transcripts").glob("**/*.jsonl"))


def document(source: Path) -> tuple[Report, dict[str, Any]]:
    with read_conversation(open_recording(source), price=price) as conversation:
        return conversation.report, json.loads(b"".join(atif_document(conversation)))


def all_steps(trajectory: dict[str, Any]) -> list[dict[str, Any]]:
    nested = [all_steps(entry) for entry in trajectory.get("subagent_trajectories", [])]
    return [*trajectory["steps"], *(step for steps in nested for step in steps)]


@pytest.mark.parametrize("agent", sorted(path.name for path in ROOT.iterdir()))
def test_the_validator_accepts_every_recording(agent: str) -> None:
    """All calls are there once, and their results, and the totals are those of the report."""
    sources = [path for path in (*RECORDINGS, *TRANSCRIPTS) if path.is_relative_to(ROOT / agent)]
    assert sources
    for source in sources:
        report, trajectory = document(source)
        parsed = atif.Trajectory.model_validate(trajectory)
        assert parsed.to_json_dict() == trajectory, source
        calls = [
            call["tool_call_id"]
            for step in all_steps(trajectory)
            for call in step.get("tool_calls", [])
        ]
        assert sorted(calls) == sorted({tool.id for tool in report.tools}), source
        metrics = trajectory["final_metrics"]
        assert metrics.get("total_completion_tokens") == report.tokens.output, source
        assert metrics.get("total_cost_usd") == report.cost.usd, source


def test_a_run_with_edits() -> None:
    """Compared with the figures in the recording's own lines."""
    report, trajectory = document(CLAUDE / "multi_tool_edit")
    assert trajectory["schema_version"] == "ATIF-v1.8"
    model = {"name": "claude", "version": "2.1.325", "model_name": "claude-opus-5-5"}
    assert trajectory["agent"] == model
    assert trajectory["extra"]["verdict"] == "success"
    requests = {}
    for line in (CLAUDE / "multi_tool_edit" / "stdout").read_text().splitlines():
        entry = json.loads(line)
        if entry["type"] == "assistant":
            requests[entry["message"]["id"]] = entry["message"]["usage"]
    steps = [step for step in trajectory["steps"] if step["source"] == "agent"]
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    expected = [sum(usage[name] for name in names) for usage in requests.values()]
    assert [step["metrics"]["prompt_tokens"] for step in steps] == expected
    assert sum(expected) == trajectory["final_metrics"]["total_prompt_tokens"]
    first = next(step for step in steps if "tool_calls" in step)
    (call, *_), (result, *_) = first["tool_calls"], first["observation"]["results"]
    assert (call["function_name"], result["source_call_id"]) == ("Glob", call["tool_call_id"])
    assert set(call["arguments"]) == {"pattern"}
    assert trajectory["final_metrics"]["total_steps"] == len(trajectory["steps"])
    assert report.tokens.cache_read == trajectory["final_metrics"]["total_cached_tokens"]


def test_subagents_are_embedded() -> None:
    source = ROOT / (ROOT.parent / "export/golden/claude-subagents/source").read_text().strip()
    _, trajectory = document(source)
    embedded = {entry["trajectory_id"]: entry for entry in trajectory["subagent_trajectories"]}
    refs = [
        ref["trajectory_id"]
        for step in trajectory["steps"]
        for result in step.get("observation", {}).get("results", [])
        for ref in result.get("subagent_trajectory_ref", [])
    ]
    assert sorted(refs) == sorted(embedded)
    assert all(entry["steps"] for entry in embedded.values())


def test_subagents_that_claim_to_start_each_other() -> None:
    """No step is lost, however strange the data is."""
    builder = StepBuilder()
    for number in range(200):  # a chain that is nested deeper than any parser reads
        builder.add(
            [ev.ToolCall(1, None, f"c{number - 1}" if number else None, None, f"c{number}")]
        )
    builder.add([ev.ToolCall(1, None, "b", None, "a"), ev.ToolCall(1, None, "a", None, "b")])
    with Conversation(Report(), builder, None, None) as conversation:
        trajectory = json.loads(b"".join(atif_document(conversation)))
    atif.Trajectory.model_validate(trajectory)
    ids = [call["tool_call_id"] for step in all_steps(trajectory) for call in step["tool_calls"]]
    assert sorted(ids) == sorted([*(f"c{number}" for number in range(200)), "a", "b"])


def test_the_command(tmp_path: Path) -> None:
    target = tmp_path / "run.atif"
    done = program.steno(tmp_path, "export", CLAUDE / "multi_tool_edit", "-o", target)
    assert (done.code, done.err) == (0, f"steno: wrote {target}\n")
    atif.Trajectory.model_validate_json(target.read_bytes())
    done = program.steno(tmp_path, "export", CLAUDE / "multi_tool_edit", "--format", "atif")
    assert done.out == target.read_text()
