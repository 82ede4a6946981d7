"""Streams in which one thing is repeated: the work for each must grow with its number, not faster.

`SHAPES` has, by the name of what is repeated, a function from the number to the lines of Claude
Code; `RECORDED` the same for the records of a recording file. `benchmarks.scale` measures them,
`tests/analysis/test_growth.py` counts what is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.claude_lines import (
    CWD,
    MODEL,
    SESSION,
    answer,
    assistant,
    call,
    denied,
    init,
    opened,
    outcome,
    refusal,
    result,
    share,
    system,
    text,
    usage,
    user,
)

from steno.recording.format import Header, Record, encode_record

Json = dict[str, Any]
Lines = Iterator[Json]
Shape = Callable[[int], Lines]

TASK = {"description": "look", "prompt": "look", "subagent_type": "Explore"}
SLEEP = {"command": "sleep 9", "run_in_background": True}
BY_TASK = {"kind": "task-notification"}
START = 1_767_225_600.0


def said(number: int, **more: Any) -> Json:
    """A request with a text."""
    used = usage(output=101)
    return assistant(text("yes"), message=f"m{number}", used=used, stop_reason="end_turn", **more)


def called(number: int, name: str = "Bash", **more: Any) -> Json:
    """A request with a call."""
    tool_input = more.pop("tool_input", {"command": "ls"})
    return assistant(call(f"t{number}", name, **tool_input), message=f"m{number}", **more)


def closed(number: int, **more: Any) -> Json:
    return result(**{"uuid": f"r{number}", **more})


# -- requests and results --------------------------------------------------------------------------


def requests(count: int) -> Lines:
    yield from map(said, range(count))
    yield closed(0)


def requests_after_the_result(count: int) -> Lines:
    yield closed(0)
    yield from map(said, range(count))


def requests_left_out_of_the_totals(count: int) -> Lines:
    yield from map(said, range(count))
    rest = {"given": 9 * count, "write": 9999 * count, "read": 99999 * count, "output": 999 * count}
    yield closed(
        0,
        usage=usage(3 * (count - 1), 1001 * (count - 1), 20000 * (count - 1)),
        modelUsage={MODEL: share(**rest)},
    )


def turns(count: int, **more: Any) -> Lines:
    for number in range(count):
        yield said(number)
        yield closed(number, **more)


def turns_without_model_usage(count: int) -> Lines:
    for line in turns(count):
        line.pop("modelUsage", None)
        yield line


def turns_of_a_session(count: int) -> Lines:
    return turns(count, result_index=1)


def turns_with_their_own_usage(count: int) -> Lines:
    return turns(count, result_index=1, model_usage_since_last_result={MODEL: share()})


def turns_without_text(count: int) -> Lines:
    return turns(count, result="")


def failed_turns(count: int) -> Lines:
    return turns(count, is_error=True)


def sessions(count: int) -> Lines:
    for number in range(count):
        session = f"{number:08}{SESSION[8:]}"
        yield init(session_id=session)
        yield {**said(number), "session_id": session}
        yield closed(number, session_id=session)


def streamed_requests(count: int) -> Lines:
    for number in range(count):
        yield opened(f"m{number}")
        yield said(number)


def models(count: int) -> Lines:
    names = [f"claude-{number}" for number in range(count)]
    yield from (said(number, model=name) for number, name in enumerate(names))
    yield closed(0, modelUsage={name: share() for name in names})


def models_after_the_result(count: int) -> Lines:
    yield closed(0)
    yield from (said(number, model=f"claude-{number}") for number in range(count))


def models_left_out_of_the_totals(count: int) -> Lines:
    """Half of them, so that each has to be compared with its share."""
    names = [f"claude-{number}" for number in range(count)]
    yield from (said(number, model=name) for number, name in enumerate(names))
    half = count // 2
    yield closed(
        0,
        usage=usage(3 * half, 1001 * half, 20000 * half),
        modelUsage={f"{name}[1m]": share() for name in names},
    )


def requests_beside_many_models(count: int) -> Lines:
    yield closed(0, modelUsage={f"claude-{number}": share() for number in range(count)})
    yield from (said(number, model="other") for number in range(count))


# -- calls -----------------------------------------------------------------------------------------


def calls(count: int) -> Lines:
    for number in range(count):
        yield called(number)
        yield answer(f"t{number}")
    yield closed(0)


def calls_in_one_message(count: int) -> Lines:
    yield assistant(*(call(f"t{number}", "Bash", command="ls") for number in range(count)))
    yield user([outcome(f"t{number}") for number in range(count)])
    yield closed(0)


def calls_without_result(count: int) -> Lines:
    yield from map(called, range(count))


def calls_cut_off_by_results(count: int) -> Lines:
    for number in range(count):
        yield called(number)
        yield closed(number)


def failed_calls(count: int) -> Lines:
    for number in range(count):
        yield called(number)
        yield answer(f"t{number}", "Exit code 1", True)


def denied_calls(count: int) -> Lines:
    for number in range(count):
        yield called(number)
        yield refusal(f"t{number}")
    yield closed(
        0, permission_denials=[denied(f"t{n}", "Bash", command="ls") for n in range(count)]
    )


def denied_calls_in_one_message(count: int) -> Lines:
    yield assistant(*(call(f"t{number}", "Bash", command="ls") for number in range(count)))
    yield user([refusal(f"t{number}")["message"]["content"][0] for number in range(count)])


def questions(count: int) -> Lines:
    for number in range(count):
        yield called(number, "AskUserQuestion", tool_input={"questions": []})
    yield closed(0)


def changes_of_one_file(count: int) -> Lines:
    return _changes([f"{CWD}/a.py"] * count)


def changed_files(count: int) -> Lines:
    return _changes([f"{CWD}/{number}.py" for number in range(count)])


def _changes(paths: list[str]) -> Lines:
    for number, path in enumerate(paths):
        yield called(number, "Write", tool_input={"file_path": path, "content": "x"})
        yield answer(f"t{number}", tool_use_result={"type": "update", "filePath": path})
    yield closed(0)


# -- subagents and background work -----------------------------------------------------------------


def subagents(count: int) -> Lines:
    for number in range(count):
        yield called(number, "Task", tool_input=TASK)
        yield said(count + number, parent=f"t{number}")
        yield answer(f"t{number}", tool_use_result={"status": "completed", "agentId": f"a{number}"})
    yield closed(0)


def subagents_without_call(count: int) -> Lines:
    yield from (said(number, parent=f"t{number}") for number in range(count))


def nested_subagents(count: int) -> Lines:
    for number in range(count):
        parent = f"t{number - 1}" if number else None
        yield called(number, "Task", parent=parent, tool_input={**TASK, "prompt": str(number)})


def background_tasks(count: int) -> Lines:
    for number in range(count):
        yield from _background_task(number)
    yield closed(0)


def _background_task(number: int) -> Lines:
    yield called(number, tool_input=SLEEP)
    yield answer(f"t{number}", tool_use_result={"backgroundTaskId": f"b{number}"})


def background_tasks_answered_later(count: int) -> Lines:
    yield from background_tasks(count)
    yield from (closed(number, origin=BY_TASK) for number in range(1, count + 1))


def background_tasks_answered_at_once(count: int) -> Lines:
    for number in range(count):
        yield from _background_task(number)
        yield closed(number, origin=BY_TASK)


def background_tasks_stopped(count: int) -> Lines:
    yield from background_tasks(count)
    for number in range(count):
        task = {"task_id": f"b{number}", "tool_use_id": f"t{number}"}
        yield system("task_notification", status="stopped", **task)


# -- everything else -------------------------------------------------------------------------------


def compactions(count: int) -> Lines:
    for number in range(count):
        yield said(number)
        yield system("compact_boundary", compact_metadata={"pre_tokens": 9, "post_tokens": 1})


def retries(count: int) -> Lines:
    for number in range(count):
        yield system("api_retry", attempt=number, error_status=529, retry_delay_ms=5)


def prompts(count: int) -> Lines:
    for number in range(count):
        yield user("next")
        yield said(number)


def unknown_lines(count: int) -> Lines:
    return ({"type": "new", "number": number} for number in range(count))


SHAPES: dict[str, Shape] = {
    function.__name__.replace("_", " "): function
    for function in (
        *(requests, requests_after_the_result, requests_left_out_of_the_totals),
        *(turns, turns_without_model_usage, turns_of_a_session, turns_with_their_own_usage),
        *(turns_without_text, failed_turns, sessions, streamed_requests),
        *(models, models_after_the_result, models_left_out_of_the_totals),
        *(requests_beside_many_models, calls, calls_in_one_message, calls_without_result),
        *(calls_cut_off_by_results, failed_calls, denied_calls, denied_calls_in_one_message),
        *(questions, changes_of_one_file, changed_files),
        *(subagents, subagents_without_call, nested_subagents),
        *(background_tasks, background_tasks_answered_later, background_tasks_answered_at_once),
        *(background_tasks_stopped, compactions, retries, prompts, unknown_lines),
    )
}


def stream(shape: Shape, count: int) -> bytes:
    """The lines of a stream, after its first."""
    lines = (init(), *shape(count))
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


# -- recording files -------------------------------------------------------------------------------


def file_changes_seen_on_disk(count: int) -> Iterator[Record]:
    for number in range(count):
        yield _printed(number, called(number))
        yield Record(number + 0.2, "file", f"modified {number % 100}.py".encode())
        yield _printed(number + 0.5, answer(f"t{number}"))


def file_changes_beside_open_calls(count: int) -> Iterator[Record]:
    for number in range(count):
        yield _printed(number, called(number, "Read", tool_input={"file_path": "a"}))
        yield Record(number + 0.2, "file", f"modified {number}.py".encode())


def temporary_files(count: int) -> Iterator[Record]:
    for number in range(count):
        yield Record(number, "file", f"created {number}.py".encode())
        yield Record(number, "file", f"deleted {number}.py".encode())


def background_tasks_when_stopped(count: int) -> Iterator[Record]:
    yield from (_printed(number, line) for number, line in enumerate(background_tasks(count)))
    yield Record(2.0 * count, "stop", b"timeout", 2)
    for number in range(count):
        task = {"task_id": f"b{number}", "tool_use_id": f"t{number}"}
        yield _printed(2.0 * count, system("task_notification", status="completed", **task))


def lines_of_stderr(count: int) -> Iterator[Record]:
    return (Record(number, "err", b"warning\n") for number in range(count))


def _printed(at: float, line: Json) -> Record:
    return Record(at, "out", json.dumps(line).encode() + b"\n")


RECORDED: dict[str, Callable[[int], Iterator[Record]]] = {
    function.__name__.replace("_", " "): function
    for function in (
        *(file_changes_seen_on_disk, file_changes_beside_open_calls, temporary_files),
        *(background_tasks_when_stopped, lines_of_stderr),
    )
}


def recording(records: Callable[[int], Iterator[Record]], count: int) -> bytes:
    """A complete recording file."""
    header = Header(agent="claude", run_id="r1", cwd=CWD, started_at=START)
    head = json.dumps({"schema": header.schema, "agent": "claude", "cwd": CWD, "started_at": START})
    body = (_printed(0, init()), *records(count), Record(3.0 * count, "exit", number=0))
    return b"".join((head.encode() + b"\n", *map(encode_record, (*body, Record(None, "end")))))
