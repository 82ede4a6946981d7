"""Builders for the lines of Claude Code.

The figures are those of the scripted model server in the recordings: a request has 3/1001/20000
tokens of input and 101 of output, and costs $0.011037 on claude-opus-5-5.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import steno
from steno.recording.format import Header, Record, Recorder
from steno.report import Report

Json = dict[str, Any]

SESSION = "11111111-2222-4333-8444-555555555555"
MODEL = "claude-opus-5-5"
CWD = "/srv/project"
REQUEST_COST = 0.011037
RECORDINGS = Path(__file__).parents[1] / "recordings"


# -- bytes -------------------------------------------------------------------------------------


def dump(value: Any) -> bytes:
    """A JSON value as the agent writes it: compact, with raw non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def stream(*lines: Json | bytes) -> bytes:
    """Lines as bytes, each with a newline; bytes are used as they are."""
    return b"".join((line if isinstance(line, bytes) else dump(line)) + b"\n" for line in lines)


def report(*lines: Json | bytes) -> Report:
    """The report of a stream of these lines."""
    return steno.read(stream(*lines))


def plain(report_: Report) -> Json:
    """A report as plain values without its source, for comparisons."""
    value: Json = json.loads(report_.to_json())
    del value["source"]
    return value


def folder(path: Path, stdout: bytes, code: int | None = None, stderr: bytes | None = None) -> Path:
    """Write a recording folder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "stdout").write_bytes(stdout)
    if code is not None:
        (path / "exit_code").write_text(f"{code}\n")
    if stderr is not None:
        (path / "stderr").write_bytes(stderr)
    return path


def tape(path: Path, *records: Record, header: Header | None = None) -> Path:
    """Write a complete recording file."""
    with Recorder(path, header or Header(agent="claude")) as recorder:
        for record in records:
            recorder.write(record)
    return path


def out(data: bytes) -> Record:
    return Record(None, "out", data)


def err(data: bytes) -> Record:
    return Record(None, "err", data)


def ended(code: int | None) -> Record:
    return Record(None, "exit", number=code)


def stop(why: str, signal: int | None = 15) -> Record:
    return Record(None, "stop", why.encode(), signal)


# -- lines -------------------------------------------------------------------------------------


def init(**more: Any) -> Json:
    line = {
        "type": "system",
        "subtype": "init",
        "cwd": CWD,
        "session_id": SESSION,
        "tools": ["Task", "Bash", "Read", "Edit", "Write"],
        "mcp_servers": [],
        "model": MODEL,
        "permissionMode": "default",
        "apiKeySource": "ANTHROPIC_API_KEY",
        "claude_code_version": "2.1.325",
    }
    return {**line, **more}


def system(subtype: str, **more: Any) -> Json:
    return {"type": "system", "subtype": subtype, "session_id": SESSION, **more}


def usage(
    given: int = 3, write: int = 1001, read: int = 20000, output: int = 1, hour: int = 0
) -> Json:
    """The usage of a message or a result; `hour` is the part of `write` cached for an hour."""
    return {
        "input_tokens": given,
        "cache_creation_input_tokens": write,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": write - hour,
            "ephemeral_1h_input_tokens": hour,
        },
        "output_tokens": output,
    }


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(id_: str, name: str, **given: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def assistant(
    *blocks: Any,
    message: str = "msg_1",
    used: Json | None = None,
    parent: str | None = None,
    model: str = MODEL,
    stop_reason: str | None = None,
    **more: Any,
) -> Json:
    inner = {
        "model": model,
        "id": message,
        "type": "message",
        "role": "assistant",
        "content": list(blocks),
        "stop_reason": stop_reason,
        "usage": usage() if used is None else used,
    }
    return {
        "type": "assistant",
        "message": inner,
        "parent_tool_use_id": parent,
        "session_id": SESSION,
        **more,
    }


def user(content: Any, parent: str | None = None, **more: Any) -> Json:
    message = {"role": "user", "content": content}
    return {
        "type": "user",
        "message": message,
        "parent_tool_use_id": parent,
        "session_id": SESSION,
        **more,
    }


def outcome(id_: str, content: Any = "ok", is_error: Any = False) -> Json:
    """The block with the result of a call."""
    return {"type": "tool_result", "tool_use_id": id_, "content": content, "is_error": is_error}


def answer(id_: str, content: Any = "ok", is_error: Any = False, **more: Any) -> Json:
    """The line with the result of a call."""
    return user([outcome(id_, content, is_error)], **more)


def refusal(id_: str) -> Json:
    message = "Claude requested permissions to use this tool, but you haven't granted it yet."
    return answer(id_, message, True, tool_use_result=f"Error: {message}")


def opened(message: str = "msg_1") -> Json:
    """The start of a streamed message."""
    event = {"type": "message_start", "message": assistant(message=message)["message"]}
    return {
        "type": "stream_event",
        "event": event,
        "session_id": SESSION,
        "parent_tool_use_id": None,
    }


def delta(output: int, stop_reason: str = "end_turn", **more: Any) -> Json:
    """The end of a streamed message, with its final output tokens."""
    event = {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason},
        "usage": {"output_tokens": output},
    }
    return {
        "type": "stream_event",
        "event": event,
        "session_id": SESSION,
        "parent_tool_use_id": None,
        **more,
    }


def share(
    given: int = 3,
    write: int = 1001,
    read: int = 20000,
    output: int = 101,
    cost: float | None = REQUEST_COST,
    window: int | None = 1_000_000,
    **more: Any,
) -> Json:
    """One model's entry in modelUsage."""
    entry: Json = {
        "inputTokens": given,
        "outputTokens": output,
        "cacheReadInputTokens": read,
        "cacheCreationInputTokens": write,
        "costUSD": cost,
        "contextWindow": window,
        "maxOutputTokens": 128000,
    }
    return {key: value for key, value in {**entry, **more}.items() if value is not None}


def result(words: str | None = "Done.", **more: Any) -> Json:
    """The result of a run with one request; None omits `result`."""
    line: Json = {
        "duration_api_ms": 18,
        "session_id": SESSION,
        "total_cost_usd": REQUEST_COST,
        "usage": usage(output=101),
        "modelUsage": {MODEL: share()},
        "permission_denials": [],
        "is_error": False,
        "num_turns": 1,
        "subtype": "success",
        "type": "result",
        "duration_ms": 120,
    }
    if words is not None:
        line["result"] = words
    return {**line, **more}


def failed(words: str | None = "API Error: something broke", **more: Any) -> Json:
    """The result of a request that failed for good, in newer versions."""
    zero = {"usage": usage(0, 0, 0, 0), "modelUsage": {}, "total_cost_usd": 0}
    return result(words, **{"is_error": True, **zero, **more})


def denied(id_: str, tool: str, **given: Any) -> Json:
    """One entry of permission_denials."""
    return {"tool_name": tool, "tool_use_id": id_, "tool_input": given}


def hello() -> list[Json]:
    """The smallest complete run."""
    return [init(), assistant(text("Hello there.")), result("Hello there.")]


def worked() -> list[Json]:
    """A run of four requests with a file, a command and a subagent with one more request."""
    total = share(19, 5015, 100000, 515, 0.055451)
    return [
        init(),
        assistant(text("I will write it.")),
        assistant(call("toolu_1", "Write", file_path=f"{CWD}/notes.txt", content="one\n")),
        answer(
            "toolu_1",
            "File created",
            tool_use_result={"type": "create", "filePath": f"{CWD}/notes.txt"},
        ),
        assistant(
            call("toolu_2", "Bash", command="wc -l notes.txt"),
            message="msg_2",
            used=usage(write=1002),
        ),
        answer(
            "toolu_2",
            "1 notes.txt",
            tool_use_result={"stdout": "1 notes.txt", "stderr": "", "interrupted": False},
        ),
        assistant(
            call("toolu_3", "Task", description="Look around", subagent_type="Explore"),
            message="msg_3",
            used=usage(write=1003),
        ),
        assistant(text("I see one file."), message="msg_4", parent="toolu_3", used=usage(7, 1004)),
        answer(
            "toolu_3",
            [text("I see one file.")],
            tool_use_result={"status": "completed", "agentId": "a1"},
        ),
        assistant(text("All is done — naïvely ✓"), message="msg_5", used=usage(write=1005)),
        result(
            "All is done — naïvely ✓",
            num_turns=4,
            usage=usage(12, 4011, 80000, 410),
            modelUsage={MODEL: total},
            total_cost_usd=0.055451,
        ),
    ]


# A run with nearly all other kinds of lines.
REFUSED: list[Json] = [
    init(),
    opened(),
    assistant(call("toolu_1", "Bash", command="rm -rf build")),
    delta(101, "tool_use"),
    system(
        "permission_denied", tool_name="Bash", tool_use_id="toolu_1", message="It needs approval."
    ),
    refusal("toolu_1"),
    system(
        "compact_boundary",
        compact_metadata={"trigger": "auto", "pre_tokens": 21105, "post_tokens": 2517},
    ),
    user("Carry on.", isSynthetic=True),
    system(
        "task_started",
        task_id="t1",
        tool_use_id="toolu_1",
        task_type="local_bash",
        is_backgrounded=True,
    ),
    system(
        "task_notification", task_id="t1", tool_use_id="toolu_1", status="completed", summary="done"
    ),
    system(
        "api_retry",
        attempt=1,
        max_retries=10,
        retry_delay_ms=500,
        error_status=529,
        error="overloaded",
    ),
    {
        "type": "rate_limit_event",
        "rate_limit_info": {"status": "allowed", "resetsAt": 1800000000, "utilization": 0.5},
    },
    assistant(text("I may not."), message="msg_2"),
    result(
        "I may not.",
        permission_denials=[denied("toolu_1", "Bash", command="rm -rf build")],
        num_turns=2,
    ),
]

# -- recordings --------------------------------------------------------------------------------


def recorded(limit: int) -> list[Path]:
    """The stdout of all recordings of at most `limit` bytes."""
    return [
        path
        for path in sorted(RECORDINGS.glob("claude/*/*/stdout"))
        if 0 < path.stat().st_size <= limit
    ]


def spread(paths: Iterable[Path], count: int) -> list[Path]:
    """A few of many, evenly spread."""
    items = list(paths)
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def named(path: Path) -> str:
    """The version and the scenario of a recording."""
    return "/".join(path.parts[-3:-1])
