"""Tests of agents: `pytest examples/pytest` reads recordings, --steno-live runs the agent."""

import pytest

RECORDING = "../../tests/recordings/claude/2.1.325/multi_tool_edit"


def test_a_recording(steno_replay, assert_report):
    report = steno_replay(RECORDING)
    assert_report(report, max_cost=0.10, tools=["Edit", "Bash"], forbid_commands=["git push"])


@pytest.mark.agent(repeat=3, min_success=0.6, max_cost=1)
def test_a_run(steno_run, assert_report, tmp_path):
    (tmp_path / "app.py").write_text("def add(a, b):\n    return a - b\n")
    report = steno_run("fix add() in app.py", allow=["Edit"], max_turns=10)
    assert_report(report, files=["app.py"], max_files=1)
    assert "a + b" in (tmp_path / "app.py").read_text()
