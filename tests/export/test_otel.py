"""Spans and metrics, sent to a real OTLP/HTTP receiver on loopback and compared field by field."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.export.spans import TraceContext, provider_name, trace_context
from steno.installation import extra_command
from steno.recording.format import Header, Record
from tests.support import all_agents, modelserver, otlp, program
from tests.support.claude_lines import (
    MODEL,
    SESSION,
    answer,
    assistant,
    call,
    dump,
    init,
    result,
    share,
    tape,
    text,
    usage,
)
from tests.support.scripted_place import Place

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
STARTED = 1_795_000_000
SECRET = "ghp_" + "a1B2" * 9
CLIENT, INTERNAL = 3, 1  # kinds of spans in OTLP
ERROR = 2  # a status


@pytest.fixture
def collector() -> Iterator[otlp.Collector]:
    with otlp.collecting() as received:
        yield received


def at(seconds: float) -> int:
    """A time of the recording in nanoseconds since 1970."""
    return STARTED * 10**9 + round(seconds * 1000) * 10**6


def recorded(folder: Path) -> Path:
    """Two requests, a call that works and one that fails, a subagent; each line has its time."""
    task = call("call_3", "Task", subagent_type="explorer", description="look", prompt="x")
    totals = {"usage": usage(12, 4004, 80000, 404), "total_cost_usd": 0.04, "num_turns": 3}
    models = {"modelUsage": {MODEL: share(12, 4004, 80000, 404, 0.04)}}
    lines = [
        (0.5, init()),
        (2.0, assistant(call("call_1", "Read", file_path="/etc/hosts"), used=usage(output=7))),
        (2.25, answer("call_1", f"token={SECRET}")),
        (4.0, assistant(call("call_2", "Bash", command="false"), task, message="msg_2")),
        (5.0, answer("call_2", "Exit code 1", True)),
        (5.5, assistant(text("found"), message="msg_sub", parent="call_3")),
        (6.0, answer("call_3", "found")),
        (7.5, assistant(text("All done."), message="msg_3", stop_reason="end_turn")),
        (7.6, result("All done.", **totals, **models)),
    ]
    records = [Record(offset, "out", dump(line) + b"\n") for offset, line in lines]
    header = Header(agent="claude", run_id="run-1", started_at=float(STARTED), cwd="/srv/project")
    return tape(folder / "run.steno", *records, Record(8.0, "exit", number=0), header=header)


def test_a_trace_field_by_field(collector: otlp.Collector, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ("show", f"--otel={collector.url}", recorded(tmp_path))
    done = program.steno(data, *words, TRACEPARENT=TRACEPARENT, TRACESTATE="vendor=1")
    assert (done.code, done.err) == (0, "")
    assert collector.paths == ["/v1/traces", "/v1/metrics"]
    (resource,) = collector.resources
    assert (resource["service.name"], resource["telemetry.sdk.language"]) == ("steno", "python")
    (root,) = collector.by_name("invoke_agent claude")
    common = {"trace": TRACE, "state": "vendor=1"}
    tokens = {
        "gen_ai.usage.input_tokens": 84016,
        "gen_ai.usage.output_tokens": 404,
        "gen_ai.usage.cache_creation.input_tokens": 4004,
        "gen_ai.usage.cache_read.input_tokens": 80000,
        "gen_ai.usage.reasoning.output_tokens": 0,
    }
    assert root == {
        **common,
        "id": root["id"],
        "parent": PARENT,
        "name": "invoke_agent claude",
        "kind": CLIENT,
        "start": at(0),
        "end": at(8),
        "status": (0, ""),
        "attributes": {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.agent.name": "claude",
            "gen_ai.agent.version": "2.1.325",
            "gen_ai.conversation.id": SESSION,
            "gen_ai.request.model": MODEL,
            **tokens,
            "process.exit.code": 0,
            "steno.run.id": "run-1",
            "steno.verdict": "success",
            "steno.cost.usd": 0.04,
            "steno.cost.source": "reported",
            "steno.turns": 3,
            "steno.context.peak": 21004,
            "steno.files.changed": 0,
        },
    }
    tools = {span["attributes"]["gen_ai.tool.call.id"]: span for span in collector.by_name("exec")}
    assert tools["call_1"] == {
        **common,
        "id": tools["call_1"]["id"],
        "parent": root["id"],
        "name": "execute_tool Read",
        "kind": INTERNAL,
        "start": at(2),
        "end": at(2.25),
        "status": (0, ""),
        "attributes": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "Read",
            "gen_ai.tool.call.id": "call_1",
            "gen_ai.tool.type": "function",
            "steno.tool.kind": "file_read",
        },
    }
    failed = tools["call_2"]
    assert (failed["start"], failed["end"]) == (at(4), at(5))
    assert failed["status"] == (ERROR, "tool_error")
    assert failed["attributes"]["error.type"] == "tool_error"
    (agent,) = collector.by_name("invoke_agent explorer")
    assert agent["parent"] == tools["call_3"]["id"]
    assert (agent["start"], agent["end"], agent["kind"]) == (at(4), at(6), INTERNAL)
    chats = {span["attributes"]["gen_ai.response.id"]: span for span in collector.by_name("chat")}
    parents = {name: span["parent"] for name, span in chats.items()}
    assert parents == {
        "msg_1": root["id"],
        "msg_2": root["id"],
        "msg_sub": agent["id"],
        "msg_3": root["id"],
    }
    # A request starts with the last line of its thread before the answer.
    assert {name: (span["start"], span["end"]) for name, span in chats.items()} == {
        "msg_1": (at(0.5), at(2)),
        "msg_2": (at(2.25), at(4)),
        "msg_sub": (at(5.5), at(5.5)),
        "msg_3": (at(6), at(7.5)),
    }
    assert chats["msg_3"] == {
        **common,
        "id": chats["msg_3"]["id"],
        "parent": root["id"],
        "name": f"chat {MODEL}",
        "kind": CLIENT,
        "start": at(6),
        "end": at(7.5),
        "status": (0, ""),
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": MODEL,
            "gen_ai.response.model": MODEL,
            "gen_ai.response.id": "msg_3",
            "gen_ai.response.finish_reasons": ["end_turn"],
            "gen_ai.conversation.id": SESSION,
            "gen_ai.usage.input_tokens": 21004,
            "gen_ai.usage.output_tokens": 1,
            "gen_ai.usage.cache_creation.input_tokens": 1001,
            "gen_ai.usage.cache_read.input_tokens": 20000,
        },
    }
    ids = [span["id"] for span in collector.spans]
    assert len(set(ids)) == len(ids) == 9


def test_metrics_field_by_field(collector: otlp.Collector, tmp_path: Path) -> None:
    program.steno(tmp_path / "data", "show", f"--otel={collector.url}", recorded(tmp_path))
    model = {"gen_ai.request.model": MODEL, "gen_ai.response.model": MODEL}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", **model}
    usages = [point for point in collector.points if point["name"] == "gen_ai.client.token.usage"]
    assert [(point["attributes"], point["count"], point["sum"]) for point in usages] == [
        ({**chat, "gen_ai.token.type": "input"}, 4, 4 * 21004),
        ({**chat, "gen_ai.token.type": "output"}, 1, 1),  # of the others it is not final
    ]
    assert (usages[0]["unit"], usages[0]["bounds"][:4]) == ("{token}", [1.0, 4.0, 16.0, 64.0])
    times = {
        (
            point["attributes"]["gen_ai.operation.name"],
            point["attributes"].get("gen_ai.agent.name"),
            point["attributes"].get("error.type"),
        ): (point["count"], round(point["sum"], 6), point["unit"])
        for point in collector.points
        if point["name"] == "gen_ai.client.operation.duration"
    }
    assert times == {
        ("invoke_agent", "claude", None): (1, 8.0, "s"),
        ("execute_tool", None, None): (2, 2.25, "s"),
        ("execute_tool", None, "tool_error"): (1, 1.0, "s"),
        ("invoke_agent", "explorer", None): (1, 2.0, "s"),
        ("chat", None, None): (4, 4.75, "s"),
    }


def test_contents_only_if_asked_for(collector: otlp.Collector, tmp_path: Path) -> None:
    source = recorded(tmp_path)
    program.steno(tmp_path / "data", "show", f"--otel={collector.url}", source)
    assert "hosts" not in json.dumps(collector.spans)
    assert "All done" not in json.dumps(collector.spans)
    variable = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    asked: list[tuple[list[str], dict[str, Any]]] = [(["--otel-content"], {}), ([], {**variable})]
    for words, more in asked:
        collector.spans.clear()
        program.steno(tmp_path / "data", "show", f"--otel={collector.url}", *words, source, **more)
        (tool,) = collector.by_name("execute_tool Read")
        assert tool["attributes"]["gen_ai.tool.call.arguments"] == '{"file_path":"/etc/hosts"}'
        assert tool["attributes"]["gen_ai.tool.call.result"] == "token=[redacted]"
        assert SECRET not in json.dumps(collector.spans)
        (chat,) = (
            span
            for span in collector.by_name("chat")
            if span["attributes"]["gen_ai.response.id"] == "msg_3"
        )
        message = json.loads(chat["attributes"]["gen_ai.output.messages"])
        parts = [{"type": "text", "content": "All done."}]
        assert message == [{"role": "assistant", "parts": parts}]


def test_the_standard_variables(collector: otlp.Collector, tmp_path: Path) -> None:
    """Endpoint, headers, compression, service name, attributes; a parent that is not sampled."""
    more: dict[str, Any] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=blue",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "nightly",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=ci",
    }
    source = recorded(tmp_path)
    assert program.steno(tmp_path / "data", "show", "--otel", source, **more).err == ""
    (resource,) = collector.resources
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("nightly", "ci")
    assert {(entry["x-team"], entry["content-encoding"]) for entry in collector.headers} == {
        ("blue", "gzip")
    }
    collector.paths.clear()
    not_sampled = {**more, "TRACEPARENT": TRACEPARENT[:-2] + "00"}
    assert program.steno(tmp_path / "data", "show", "--otel", source, **not_sampled).err == ""
    assert collector.paths == ["/v1/metrics"]
    program.steno(tmp_path / "data", "show", "--otel", source, **more, OTEL_SDK_DISABLED="true")
    assert collector.paths == ["/v1/metrics"]
    program.steno(tmp_path / "data", "show", source, **more)  # the variables alone send nothing
    assert collector.paths == ["/v1/metrics"]


def test_the_same_run_has_the_same_ids(collector: otlp.Collector, tmp_path: Path) -> None:
    """Sent twice, a backend sees one trace; another run has another."""
    source = recorded(tmp_path)
    for _ in range(2):
        program.steno(tmp_path / "data", "show", f"--otel={collector.url}", source)
    first, second = collector.spans[:9], collector.spans[9:]
    assert first == second
    assert first[0]["parent"] == ""


@pytest.mark.parametrize(
    ("value", "parent"),
    [
        (TRACEPARENT, int(PARENT, 16)),
        (f"01-{TRACE}-{PARENT}-01-more", int(PARENT, 16)),
        (f"00-{TRACE}-{PARENT}-01-more", 0),
        (f"ff-{TRACE}-{PARENT}-01", 0),
        (f"00-{'0' * 32}-{PARENT}-01", 0),
        (f"00-{TRACE}-{'0' * 16}-01", 0),
        (f"00-{TRACE.upper()}-{PARENT}-01", 0),
        ("nonsense", 0),
        ("", 0),
    ],
)
def test_an_invalid_parent_begins_a_new_trace(value: str, parent: int) -> None:
    context = trace_context({"TRACEPARENT": value}, "run-1")
    assert context.parent_id == parent
    assert (context.trace_id == int(TRACE, 16)) == bool(parent)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", context.traceparent)


def test_traceparent_has_leading_zeros() -> None:
    assert TraceContext(1, 2, flags=0).traceparent == f"00-{1:032d}-{2:016d}-00"


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-opus-5-5", "anthropic"),
        ("anthropic/claude-haiku-4-5", "anthropic"),
        ("gpt-5.1-codex", "openai"),
        ("gemini-3-pro", "gcp.gemini"),
        ("my-own", "unknown"),
        (None, "unknown"),
    ],
)
def test_providers(model: str | None, provider: str) -> None:
    assert provider_name(model) == provider


# -- steno run and watch ---------------------------------------------------------------------------


def test_a_run_passes_its_trace_to_the_agent(collector: otlp.Collector, tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.steno("run", f"--otel={collector.url}", "hi", TRACEPARENT=TRACEPARENT)
    assert done.returncode == 0, done.stderr
    (root,) = collector.by_name("invoke_agent claude")
    assert (root["trace"], root["parent"]) == (TRACE, PARENT)
    assert place.calls[0]["env"]["TRACEPARENT"] == f"00-{TRACE}-{root['id']}-01"
    (chat,) = collector.by_name("chat")
    assert (chat["parent"], chat["trace"]) == (root["id"], TRACE)
    assert root["start"] <= chat["start"] <= chat["end"] <= root["end"]
    assert abs(root["end"] / 1e9 - time.time()) < 30
    place.steno("run", "hi")  # without --otel, nothing is added
    assert "TRACEPARENT" not in place.calls[1]["env"]
    place.steno("run", "hi", TRACEPARENT=TRACEPARENT)
    assert place.calls[2]["env"]["TRACEPARENT"] == TRACEPARENT
    assert len(collector.by_name("invoke_agent")) == 1


def test_attempts_are_in_one_trace(collector: otlp.Collector, tmp_path: Path) -> None:
    """By the setting in steno.toml, with a failed attempt before the successful one."""
    place = Place(tmp_path)
    failed = Path(__file__).parents[1] / "recordings/claude/2.1.325/api_500_exhausted"
    place.plan({"recording": str(failed)}, json.loads((place.folder / "plan").read_text())[0])
    (place.work / "steno.toml").write_text(f'otel = "{collector.url}"\n')
    done = place.steno("run", "--json", "hi")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "success")
    assert len(place.calls) == 2
    (root,) = collector.by_name("invoke_agent")
    assert root["attributes"]["steno.attempts"] == 2
    assert {entry["env"]["TRACEPARENT"][36:52] for entry in place.calls} == {root["id"]}


def test_a_failed_run_is_an_error(collector: otlp.Collector, tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.steno("run", f"--otel={collector.url}", "--program", "no-such-agent", "hi")
    assert done.returncode == 127
    (root,) = collector.spans
    assert root["status"] == (ERROR, "not_found")
    attributes = root["attributes"]
    assert (attributes["error.type"], attributes["steno.time.assumed"]) == ("not_found", True)


def test_a_watched_stream(collector: otlp.Collector, tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "recordings/claude/2.1.325/multi_tool_edit/stdout"
    place = Place(tmp_path)
    words = ("watch", "--quiet", f"--otel={collector.url}")
    done = place.steno(*words, stdin=source.read_bytes(), TRACEPARENT=TRACEPARENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, source.read_bytes(), b"")
    assert {span["trace"] for span in collector.spans} == {TRACE}
    assert len(collector.by_name("chat")) == 7
    assert len(collector.by_name("execute_tool")) == 13


def test_the_real_agent_gets_the_trace(collector: otlp.Collector, tmp_path: Path) -> None:
    """Claude Code on a scripted model: a tool prints the variable it inherits."""
    place = all_agents.Place("claude 2.1.325", tmp_path)
    command = 'echo "trace=$TRACEPARENT" > trace.txt'
    steps = (
        modelserver.call("Bash", command=command, description="a step"),
        modelserver.say("Ok."),
    )
    with place.start(*steps, words=(f"--otel={collector.url}",)) as active:
        run = active.finish()
    assert run.code == 0, run.err
    (root,) = collector.by_name("invoke_agent claude")
    (tool,) = collector.by_name("execute_tool Bash")
    assert tool["parent"] == root["id"]
    assert root["attributes"]["gen_ai.usage.output_tokens"] == run.report["tokens"]["output"]
    chats = collector.by_name("chat")
    assert len(chats) == run.report["requests"]
    assert all(root["start"] <= chat["start"] <= chat["end"] <= root["end"] for chat in chats)
    shown = (place.work / "trace.txt").read_text().strip()
    assert shown.startswith(f"trace=00-{root['trace']}-")


# -- failures --------------------------------------------------------------------------------------


def test_a_collector_that_fails_is_a_warning(collector: otlp.Collector, tmp_path: Path) -> None:
    collector.status = 403
    place = Place(tmp_path)
    url = collector.url.replace("http://", "http://user:hunter2@")
    done = place.steno("run", "--quiet", f"--otel={url}", "hi")
    text_ = f"steno: --otel: telemetry not sent to {url.replace('hunter2', '[redacted]')}: "
    assert (done.returncode, done.stderr.decode()) == (0, f"{text_}HTTP 403 Forbidden\n")


def test_a_collector_that_is_overloaded(collector: otlp.Collector, tmp_path: Path) -> None:
    """It is asked again, for a bounded time."""
    collector.status = 503
    place = Place(tmp_path)
    done = place.steno("run", "--quiet", f"--otel={collector.url}", "hi")
    text_ = f"steno: --otel: telemetry not sent to {collector.url}: Service Unavailable\n"
    assert (done.returncode, done.stderr.decode()) == (0, text_)
    assert len(collector.paths) >= 2


def test_a_collector_that_is_not_there(tmp_path: Path) -> None:
    """Retries are bounded."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        done = Place(tmp_path).steno("run", "--quiet", f"--otel={url}", "hi")
    text_ = f"steno: --otel: telemetry not sent to {url}: Connection refused\n"
    assert (done.returncode, done.stderr.decode()) == (0, text_)
    assert time.monotonic() - started < 20


def test_ctrl_c_ends_the_wait(collector: otlp.Collector, tmp_path: Path) -> None:
    collector.delay = 30.0
    place = Place(tmp_path)
    more = {"OTEL_EXPORTER_OTLP_TIMEOUT": "30"}
    process = subprocess.Popen(
        place.command("run", "--quiet", f"--otel={collector.url}", "hi"),
        cwd=place.work,
        env=place.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"Done.\n"  # the answer; then the trace is sent
    time.sleep(1.0)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - started < 5
    assert process.returncode == 0  # the run was successful
    assert err.decode() == f"steno: --otel: telemetry not sent to {collector.url}: interrupted\n"


def test_wrong_use(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for command in ("run", "watch", "show"):
        done = place.steno(command, "--otel=localhost:4318", *(["x"] if command != "watch" else []))
        text_ = "--otel: expected the URL of a collector, such as http://localhost:4318, or on"
        assert (done.returncode, text_ in done.stderr.decode()) == (2, True)
    assert place.calls == []


def test_missing_packages_are_named_before_the_run(tmp_path: Path) -> None:
    """An environment without them: the package is hidden by a folder before it in the path."""
    place = Place(tmp_path)
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    root = Path(__file__).parents[2] / "src"
    more: dict[str, Any] = {"PYTHONPATH": f"{hidden.parent}{os.pathsep}{root}"}
    text_ = f"steno: --otel needs opentelemetry; install: {extra_command('otel')}\n"
    for words in (("run", "--otel", "hi"), ("show", "--otel", __file__)):
        done = place.steno(*words, **more)
        assert (done.returncode, done.stderr.decode()) == (2, text_)
    assert place.calls == []
