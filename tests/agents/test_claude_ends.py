"""Ends that Claude Code calls a success: stopped background commands, deferred calls, new keys."""

import json
from pathlib import Path
from typing import Any

import pytest

import steno
from tests.support.claude_lines import (
    SESSION,
    Json,
    answer,
    assistant,
    call,
    failed,
    init,
    report,
    result,
    share,
    text,
    usage,
)

STARTED = "Command running in background with ID: "


@pytest.mark.parametrize(
    ("tool", "key", "told", "structured"),
    [
        ("KillBash", "shell_id", "Successfully killed shell: bash_1 (sleep 300)", False),  # 1.0.72
        ("KillShell", "shell_id", "Successfully killed shell: bash_1 (sleep 300)", True),  # 2.0.76
        ("TaskStop", "task_id", "Successfully stopped task: bash_1 (sleep 300)", True),  # 2.1.30
    ],
)
def test_a_background_command_that_the_agent_stopped(
    tool: str, key: str, told: str, structured: bool
) -> None:
    def more(**outcome: Any) -> Json:
        return {"tool_use_result": outcome} if structured else {}

    bash = call("toolu_1", "Bash", command="sleep 300", run_in_background=True)
    kill = call("toolu_2", tool, **{key: "bash_1"})
    begin = [
        init(),
        assistant(bash),
        answer("toolu_1", f"{STARTED}bash_1", **more(stdout="", backgroundTaskId="bash_1")),
        assistant(kill, message="msg_2"),
    ]
    words = json.dumps({"message": told, key: "bash_1"})
    end = [assistant(text("Done."), message="msg_3"), result(num_turns=3)]
    found = report(*begin, answer("toolu_2", words, **more(message=told, **{key: "bash_1"})), *end)
    assert (found.verdict, [task.status for task in found.background]) == ("success", ["stopped"])
    found = report(*begin, answer("toolu_2", "No shell found with ID: bash_1", True), *end)
    assert (found.verdict, found.background[0].status) == ("background_task", "running")


@pytest.mark.parametrize(
    ("more", "tool"),
    [
        ({"deferred_tool_use": {"id": "toolu_1", "name": "Bash", "input": {}}}, "Bash"),
        ({"terminal_reason": "tool_deferred"}, "a tool"),
        ({"stop_reason": "tool_deferred"}, "a tool"),
    ],
)
def test_a_deferred_call_is_no_success(more: Json, tool: str) -> None:
    """The schema of 2.1.325; a PreToolUse hook answered "defer"."""
    found = report(init(), assistant(call("toolu_1", "Bash", command="ls")), result("", **more))
    assert (found.verdict, found.ok, found.lines.unknown) == ("interactive", False, 0)
    assert found.warnings == [f"interactive-hang: the call of {tool} was deferred by a hook"]


def test_a_renamed_key_of_the_totals_leaves_the_tokens_of_other_sources() -> None:
    entry = share()
    entry["inputTokenCount"] = entry.pop("inputTokens")
    found = report(init(), assistant(text("Hi.")), result(modelUsage={"claude-opus-5-5": entry}))
    assert (found.tokens.total, found.cost.usd, found.cost.source) == (21105, 0.011037, "reported")
    assert found.warnings[0].startswith("the totals per model have no readable token counts")
    alone = failed(modelUsage={"claude-opus-5-5": entry})
    assert report(init(), alone).tokens.total is None


def test_subagents_of_a_workflow_are_in_the_transcript_of_their_session(tmp_path: Path) -> None:
    def line(agent: str | None, message: str) -> str:
        head = {"isSidechain": agent is not None, "sessionId": SESSION, "version": "2.1.325"}
        if agent is not None:
            head["agentId"] = agent
        used = usage(1, 2, 3, 4)
        inner = assistant(text("Hi."), message=message, used=used, stop_reason="end_turn")
        return json.dumps(
            {**head, "message": inner["message"], "type": "assistant", "uuid": message}
        )

    main = tmp_path / f"{SESSION}.jsonl"
    main.write_text(line(None, "msg_1") + "\n")
    folder = tmp_path / SESSION / "subagents/workflows/run_1"
    folder.mkdir(parents=True)
    for name in ("a1", "a2"):
        (folder / f"agent-{name}.jsonl").write_text(line(name, f"msg_{name}") + "\n")
    (folder / "journal.jsonl").write_text('{"type":"started"}\n')
    found = steno.read(main)
    assert (found.tokens.total, found.requests, len(found.subagents)) == (30, 3, 2)
