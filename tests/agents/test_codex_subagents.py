"""Subagents of Codex: their prompts, their own rollouts, and what the totals leave out."""

import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from tests.agents.test_codex import START_LINES, THREAD, item
from tests.agents.test_codex_rollouts import answer, call, context, count, line, meta, prompt
from tests.agents.test_codex_rollouts import output as call_output
from tests.support.claude_lines import Json, folder, stream

CHILD = "01a1df20-beb3-7ad3-a495-e89207704be5"
GRANDCHILD = "01a1df20-c000-7ad3-a495-e89207704be5"
MISSING = "tokens, cost and requests are a lower bound: those of 1 subagent are not reported"


def collab(number: int, tool: str, **more: Any) -> tuple[Json, Json]:
    """The lines of a call about subagents: started, then completed."""
    fields: Json = {
        "tool": tool,
        "sender_thread_id": THREAD,
        "receiver_thread_ids": [],
        "prompt": None,
    }
    started: Json = {
        **fields,
        "agents_states": {},
        "prompt": more.get("prompt"),
        "status": "in_progress",
    }
    begun = item(number, "collab_tool_call", **started)
    done = {"agents_states": {}, **more, "status": more.get("status", "completed")}
    return {**begun, "type": "item.started"}, item(number, "collab_tool_call", **{**fields, **done})


def state(status: str, message: str | None = None, thread: str = CHILD) -> Json:
    return {thread: {"status": status, "message": message}}


SPAWN = collab(
    0,
    "spawn_agent",
    prompt="Look at it.\nCarefully.",
    receiver_thread_ids=[CHILD],
    agents_states=state("pending_init"),
)
WAIT = collab(1, "wait", receiver_thread_ids=[CHILD], agents_states=state("completed", "It is 4."))
DONE = item(9, "agent_message", text="Done.")
END: Json = {
    "type": "turn.completed",
    "usage": {"input_tokens": 197, "cached_input_tokens": 11, "output_tokens": 7},
}


def read(*lines: Json) -> steno.Report:
    return steno.read(stream(*START_LINES, *lines))


def test_the_prompt_of_a_subagent_is_shown() -> None:
    lines = stream(*START_LINES, *SPAWN, *WAIT, DONE, END)
    calls = [event for event in steno.events(lines) if isinstance(event, ev.ToolCall)]
    assert [bytes(event.input) for event in calls] == [
        b'{"prompt":"Look at it.\\nCarefully."}',
        b"{}",
    ]
    results = [event for event in steno.events(lines) if isinstance(event, ev.ToolResult)]
    assert [bytes(event.content) for event in results] == [
        b'"pending_init"',
        b'"completed: It is 4."',
    ]


def test_a_subagent_without_its_rollout_is_missing_in_the_totals() -> None:
    report = read(*SPAWN, *WAIT, DONE, END)
    (row,) = report.subagents
    assert (row.id, row.description, row.status) == ("item_0", "Look at it.", "completed")
    assert row.tokens.total is None
    assert MISSING in report.warnings


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["running"], "running"),
        (["completed", "shutdown"], "completed"),
        (["shutdown"], "stopped"),
        (["interrupted"], "stopped"),
        (["errored"], "failed"),
        (["hologram"], "running"),
    ],
)
def test_the_end_of_a_subagent_by_its_state(states: list[str], status: str) -> None:
    waits = [
        part
        for number, word in enumerate(states, 1)
        for part in collab(number, "close_agent", agents_states=state(word))
    ]
    assert [row.status for row in read(*SPAWN, *waits, DONE, END).subagents] == [status]


# -- with rollouts -----------------------------------------------------------------------------


def child_meta(thread: str, parent: str, **more: Any) -> Json:
    return line(
        "session_meta", 1, id=thread, cwd="/p", cli_version="0.142.0", parent_thread_id=parent,
        **more,
    )  # fmt: skip


def spawned(id_: str, thread: str, at: float) -> tuple[Json, Json]:
    arguments = '{"message":"Look at it."}'
    return (
        call(id_, at, "spawn_agent", arguments),
        call_output(id_, f'{{"agent_id":"{thread}","nickname":"Kant"}}', at),
    )


TURN = "01a1df20-0578-7d72-9225-736b8b239f0c"
MAIN = (
    meta("0.142.0", THREAD),
    line("event_msg", 0, type="task_started", turn_id=TURN),
    context(0, turn_id=TURN),
    prompt("do it"),
    *spawned("call_1", CHILD, 0.5),
    count(101, 101, 0.6),
    answer("Done.", 5),
    count(204, 103, 5),
    line("event_msg", 5, type="task_complete", turn_id=TURN),
)
CHILD_TURN = "01a1df20-c578-7d72-9225-736b8b239f0c"
CHILDS = (
    line("event_msg", 1, type="task_started", turn_id=CHILD_TURN),
    context(1, turn_id=CHILD_TURN),
    prompt("Look at it.", 1),
    call("call_1", 1.1, "exec_command"),
    call_output("call_1", "Exit code: 0\nWall time: 1 seconds\nOutput:\n4", 2.1),
    count(107, 107, 2.2),
    answer("It is 4.", 3),
    count(216, 109, 3),
    line("event_msg", 3, type="task_complete", turn_id=CHILD_TURN),
)


def with_rollouts(path: Path, *rollouts: tuple[Json, ...]) -> Path:
    case = folder(path / "run", stream(*START_LINES, *SPAWN, *WAIT, DONE, END), 0)
    (case / "sessions").mkdir()
    for lines in rollouts:
        name = f"rollout-x-{lines[0]['payload']['id']}.jsonl"
        (case / "sessions" / name).write_bytes(stream(*lines))
    return case


def test_a_subagents_requests_are_those_of_its_own_rollout(tmp_path: Path) -> None:
    child = (child_meta(CHILD, THREAD, agent_role="explorer"), *CHILDS)
    report = steno.read(with_rollouts(tmp_path, MAIN, child))
    assert (report.tokens.total, report.requests, report.warnings) == (420, 4, [])
    assert (report.context.used, report.text) == (96, "Done.")
    (row,) = report.subagents
    assert (row.id, row.type, row.status) == ("item_0", "explorer", "completed")
    assert (row.tokens.total, row.description) == (216, "Look at it.")
    assert [(tool.name, tool.parent, tool.duration_ms) for tool in report.tools] == [
        ("spawn_agent", None, None),
        ("wait", None, None),
        ("exec_command", "item_0", 1000),
    ]


def test_a_subagent_that_copies_the_history_of_its_parent(tmp_path: Path) -> None:
    """`fork_context`: its rollout begins with the parent's lines."""
    child = (child_meta(CHILD, THREAD), meta("0.142.0", THREAD, 1.0), *MAIN[1:8], *CHILDS[:5],
             count(311, 107, 2.2), *CHILDS[6:7], count(420, 109, 3), *CHILDS[8:])  # fmt: skip
    report = steno.read(with_rollouts(tmp_path, MAIN, child))
    assert (report.tokens.total, report.requests, report.warnings) == (420, 4, [])


def test_a_subagent_of_a_subagent(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": CHILD, "depth": 2}}}
    child = (child_meta(CHILD, THREAD), *CHILDS[:3], *spawned("call_1", GRANDCHILD, 1), *CHILDS[5:])
    text = stream(*CHILDS).replace(CHILD_TURN.encode(), CHILD_TURN[:-1].encode() + b"e")
    others = [json.loads(data) for data in text.splitlines()]
    grandchild = (line("session_meta", 1, id=GRANDCHILD, source=source), *others)
    report = steno.read(with_rollouts(tmp_path, MAIN, child, grandchild))
    assert (report.tokens.total, report.requests) == (636, 6)
    assert [(row.id, row.tokens.total) for row in report.subagents] == [
        ("item_0", 216),
        (f"{CHILD}/call_1", 216),
    ]


def test_a_subagent_that_was_asked_again_in_a_later_run(tmp_path: Path) -> None:
    """Only what it did during this run counts."""
    later = (
        line("event_msg", 20, type="task_started", turn_id=TURN[:-1] + "d"),
        prompt("more", 20),
        answer("More.", 21),
        count(310, 106, 21),
    )
    child = (child_meta(CHILD, THREAD), *CHILDS, prompt("again", 20.5), count(325, 109, 20.7))
    report = steno.read(with_rollouts(tmp_path, (*MAIN, *later), child))
    assert (report.tokens.total, report.requests) == (420, 4)


def test_other_sessions_are_not_subagents(tmp_path: Path) -> None:
    """The id is in the output of a call, but its rollout names no parent, or another one."""
    for number, parent in enumerate((None, GRANDCHILD)):
        other = (line("session_meta", 1, id=CHILD, parent_thread_id=parent), *CHILDS)
        report = steno.read(with_rollouts(tmp_path / str(number), MAIN, other))
        assert report.tokens.total == 204
        assert MISSING in report.warnings


def test_the_rollouts_of_subagents_are_found_where_codex_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    for day, lines in (("16", MAIN), ("17", (child_meta(CHILD, THREAD), *CHILDS))):
        name = tmp_path / "sessions" / day / f"rollout-x-{lines[0]['payload']['id']}.jsonl"
        name.parent.mkdir(parents=True)
        name.write_bytes(stream(*lines))
    (tmp_path / "run.jsonl").write_bytes(stream(*START_LINES, *SPAWN, *WAIT, DONE, END))
    assert steno.read(tmp_path / "run.jsonl").tokens.total == 420


def test_a_rollout_alone_names_its_subagents() -> None:
    report = steno.read(stream(*MAIN))
    assert [(row.id, row.description) for row in report.subagents] == [("call_1", "Look at it.")]
    assert MISSING in report.warnings


def test_activity_of_subagents_in_0_169() -> None:
    def activity(kind: str, id_: str) -> Json:
        about = {"type": "SubAgentActivity", "id": id_, "kind": kind, "agent_thread_id": CHILD}
        return line("event_msg", type="item_completed", item={**about, "agent_path": "/root/look"})

    lines = (meta("0.169.0"), activity("started", "m1"), activity("completed", "x"), answer("a"))
    report = steno.read(stream(*lines))
    assert [(row.id, row.description, row.status) for row in report.subagents] == [
        ("m1", "look", "completed")
    ]
    assert report.lines.unknown == 0


@pytest.mark.parametrize(
    "states", [None, [], {"x": 1}, {CHILD: "completed"}, {CHILD: {"status": 5, "message": []}}]
)
def test_odd_states_do_not_raise(states: Any) -> None:
    lines = collab(0, "spawn_agent", prompt=5, receiver_thread_ids=[5, "x"], agents_states=states)
    assert read(*lines, DONE, END).verdict == "success"


def test_a_total_that_the_requests_of_a_run_do_not_make_up(tmp_path: Path) -> None:
    lines = [*MAIN[:6], *MAIN[7:]]  # the count of the first request is missing
    report = steno.read(with_rollouts(tmp_path, tuple(lines)))
    assert report.tokens.total == 103
    text = "the requests add up to 103 tokens, the session's own total is 204"
    assert [note for note in report.warnings if note.startswith("the requests")] == [text]
