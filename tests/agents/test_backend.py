"""`--backend`: parsing, probing the server, refusals, the agent's settings, and cost."""

import json
import socket
import sqlite3
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS, Backend, LaunchOptions
from steno.agents.base import NEWEST_PROGRAM, is_local_url, parse_backend
from steno.report import Cost, Report
from steno.runner import backend_probe
from steno.runner.task_report import merge_reports
from tests.support.ollama import MODEL, OllamaServer, shown
from tests.support.scripted_place import NEWEST, Place

UNUSED_URL = "http://127.0.0.1:9"  # no server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- parsing ---------------------------------------------------------------------------------------

PARSED = {
    "ollama": ("ollama", "http://127.0.0.1:11434"),
    "ollama:http://gpu:11434/": ("ollama", "http://gpu:11434"),
    "ollama:http://gpu:11434/v1": ("ollama", "http://gpu:11434"),
    "openai:http://127.0.0.1:8000": ("openai", "http://127.0.0.1:8000/v1"),
    "openai:http://127.0.0.1:8000/v1/": ("openai", "http://127.0.0.1:8000/v1"),
    "openai:http://127.0.0.1:8000/api/v3": ("openai", "http://127.0.0.1:8000/api/v3"),
    "anthropic:http://127.0.0.1:8000/v1": ("anthropic", "http://127.0.0.1:8000"),
    "anthropic:https://gateway.example/claude": ("anthropic", "https://gateway.example/claude"),
}


@pytest.mark.parametrize("value", PARSED)
def test_parse(value: str) -> None:
    backend = parse_backend(value, MODEL)
    assert (backend.kind, backend.url) == PARSED[value]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("8080", "http://127.0.0.1:8080"),
        ("gpu", "http://gpu:11434"),
        ("gpu:8080", "http://gpu:8080"),
        ("https://gpu.lan:8080/", "https://gpu.lan:8080"),
    ],
)
def test_ollama_host(host: str, url: str) -> None:
    assert parse_backend("ollama", MODEL, host).url == url


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://10.1.2.3", True),
        ("http://192.168.0.9:8000/v1", True),
        ("http://gpu:11434", True),
        ("http://gpu.local", True),
        ("http://host.docker.internal:1234", True),
        ("https://openrouter.example/api/v1", False),
        ("http://8.8.8.8", False),
    ],
)
def test_local_urls(url: str, local: bool) -> None:
    assert is_local_url(url) is local


def test_cloud_models_of_ollama_are_not_local() -> None:
    assert not parse_backend("ollama", "gpt-oss:120b-cloud").is_local
    assert parse_backend("ollama", "gpt-oss:20b").is_local


# -- probing ---------------------------------------------------------------------------------------

OTHER_MODEL = {"id": "another", "context_length": 1}
WINDOWS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "ollama, loaded": ("ollama:URL", shown(num_ctx=32_768, loaded=8_192), 8_192),
    "ollama, configured": ("ollama:URL", shown(num_ctx=32_768), 32_768),
    "ollama, maximum": ("ollama:URL", shown(), 131_072),
    "ollama, without this model": ("ollama:URL", {"/api/ps": {"models": []}}, None),
    "vLLM": (
        "openai:URL/v1",
        {"/v1/models": {"data": [OTHER_MODEL, {"id": MODEL, "max_model_len": 65_536}]}},
        65_536,
    ),
    "another service": (
        "openai:URL/v1",
        {"/v1/models": {"data": [{"id": MODEL, "context_length": 40_000}]}},
        40_000,
    ),
    "llama.cpp": (
        "openai:URL/v1",
        {"/v1/models": {"data": [{"id": MODEL, "meta": {"n_ctx_train": 4_096}}]}},
        4_096,
    ),
    "LM Studio": (
        "openai:URL/v1",
        {
            "/v1/models": {"data": [{"id": MODEL, "object": "model"}]},
            "/api/v0/models": {
                "data": [
                    {"id": MODEL, "max_context_length": 99_999, "loaded_context_length": 7_000}
                ]
            },
        },
        7_000,
    ),
    "Anthropic's protocol": (
        "anthropic:URL",
        {"/v1/models": {"data": [{"id": MODEL, "max_input_tokens": 50_000}]}},
        50_000,
    ),
    "nonsense": (
        "openai:URL/v1",
        {"/v1/models": {"data": [{"id": MODEL, "context_length": -4}, 3, None]}},
        None,
    ),
    "another shape": ("openai:URL/v1", {"/v1/models": [1, 2]}, None),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_the_context_window_comes_from_the_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is not used for a local server."""
    value, responses, window = WINDOWS[name]
    monkeypatch.setenv("http_proxy", UNUSED_URL)
    with OllamaServer(told=responses) as server:
        backend, note = backend_probe.probe_backend(
            parse_backend(value.replace("URL", server.url), MODEL), MODEL
        )
    assert (backend.context_window, note) == (window, None)


def test_the_probe_sends_the_key() -> None:
    with OllamaServer() as server:
        for key in ("sk-own", None):
            backend = parse_backend(f"ollama:{server.url}", MODEL, key=key)
            backend_probe.probe_backend(backend, MODEL)
        assert [request.key for request in server.seen] == ["sk-own", "sk-own", None, None]


def test_the_probe_does_not_follow_redirects() -> None:
    with OllamaServer() as other:
        redirects = {"/api/ps": f"{other.url}/api/ps", "/api/show": f"{other.url}/api/show"}
        with OllamaServer(told=redirects) as server:
            _, note = backend_probe.probe_backend(
                parse_backend(f"ollama:{server.url}", MODEL, key="sk-own"), MODEL
            )
        assert (other.seen, note) == (
            [],
            f"ollama at {server.url}: context window of {MODEL} unknown: HTTP 302 Found",
        )


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "never": ({"/api/ps": "silence"}, "no response in time"),
    "garbage": (
        {"/api/ps": b"<html>", "/api/show": b"<html>"},
        "JSON is malformed: invalid character (byte 0)",
    ),
    "deep": ({"/api/ps": b"[" * 100_000}, "the response is nested too deeply"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_probe_is_a_note(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run starts anyway."""
    responses, reason = FAILURES[name]
    monkeypatch.setattr(backend_probe, "PROBE_TIMEOUT_SECONDS", 0.5)
    with OllamaServer(told=responses) as server:
        backend = parse_backend(f"ollama:{server.url}", MODEL)
        probed, note = backend_probe.probe_backend(backend, MODEL)
    assert probed == backend
    assert note is not None
    assert note.startswith(f"ollama at {server.url}: context window of {MODEL} unknown: {reason}")


def test_an_unreachable_server_is_a_note() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    backend = parse_backend(f"openai:{url}", MODEL)
    assert backend_probe.probe_backend(backend, MODEL) == (
        backend,
        f"openai at {url}/v1: context window of {MODEL} unknown: Connection refused",
    )


# -- refusals --------------------------------------------------------------------------------------


def refused(place: Place, *args: str, **environ: str) -> str:
    """Run steno, check that it started and wrote nothing, and return its message."""
    done = place.steno("run", *args, "Do it.", stdin=None, cwd=None, **environ)
    assert (done.stdout, done.returncode, place.calls, place.data.exists()) == (b"", 2, [], False)
    (line,) = done.stderr.decode().splitlines()
    return line


def test_unsupported_protocols_are_refused(place: Place) -> None:
    assert refused(place, "--agent", "gemini", "--backend", "ollama", "--model", MODEL) == (
        "steno: --backend ollama: not supported by gemini; it only uses its vendor's servers"
    )
    assert refused(place, "--backend", f"openai:{UNUSED_URL}", "--model", MODEL) == (
        f"steno: --backend openai:{UNUSED_URL}: not supported by claude; "
        "supported: ollama, anthropic:URL"
    )
    assert refused(
        place, "--agent", "codex", "--model", MODEL, STENO_BACKEND=f"anthropic:{UNUSED_URL}"
    ) == (
        f"steno: STENO_BACKEND anthropic:{UNUSED_URL}: not supported by codex; "
        "supported: ollama, openai:URL"
    )


def test_a_model_is_required(place: Place) -> None:
    assert (
        refused(place, "--backend", "ollama")
        == "steno: --backend ollama: a model is required: --model NAME"
    )


@pytest.mark.parametrize(
    "value",
    [
        "lmstudio",
        "ollama:gpu",
        "openai",
        "openai:",
        "openai:ftp://x",
        "openai:http://",
        "openai:http://x?key=sk-1",
    ],
)
def test_invalid_values_are_refused(place: Place, value: str) -> None:
    assert refused(place, "--backend", value, "--model", MODEL).startswith(
        "steno: --backend: expected ollama, ollama:URL,"
    )


def test_a_secret_in_a_url_is_refused_and_not_printed(place: Place) -> None:
    line = refused(
        place, "--backend", "openai:http://me:sk-own-secret@gpu:8000/v1", "--model", MODEL
    )
    assert "without user, password or query; set STENO_BACKEND_KEY for an API key" in line
    assert "sk-own-secret" not in line


def test_a_replay_uses_no_backend(place: Place) -> None:
    replay_args = ("--agent", "replay", "--recording", str(NEWEST / "multi_tool_edit"))
    line = refused(place, *replay_args, "--backend", "ollama", "--model", MODEL)
    assert line == "steno: --backend ollama: a replay uses no model server"


# -- the agent's settings --------------------------------------------------------------------------


def test_keys_are_not_recorded(place: Place) -> None:
    """Neither the server's nor the vendor's, which is not passed on at all."""
    with OllamaServer() as server:
        args = ("run", "--json", "--backend", f"ollama:{server.url}", "--model", MODEL, "Do it.")
        done = place.steno(
            *args, STENO_BACKEND_KEY="sk-own-secret", ANTHROPIC_API_KEY="sk-ant-of-the-vendor"
        )
    (call,) = place.calls
    assert call["env"]["ANTHROPIC_AUTH_TOKEN"] == "sk-own-secret"
    assert (call["env"]["ANTHROPIC_BASE_URL"], call["env"]["ANTHROPIC_API_KEY"]) == (server.url, "")
    assert {call["env"][name] for name in call["env"] if name.endswith("_MODEL")} == {MODEL}
    (recording,) = place.tapes
    output = recording.read_bytes() + done.stdout + done.stderr + json.dumps(call["argv"]).encode()
    for secret in (b"sk-own-secret", b"sk-ant-of-the-vendor"):
        assert secret not in output
        assert secret not in (place.data / "ledger.db").read_bytes()


def test_env_overrides_the_backend(place: Place) -> None:
    place.steno(
        "run",
        "--backend",
        f"anthropic:{UNUSED_URL}",
        "--model",
        MODEL,
        "--env",
        "ANTHROPIC_AUTH_TOKEN=mine",
        "Do it.",
    )
    (call,) = place.calls
    assert call["env"]["ANTHROPIC_AUTH_TOKEN"] == "mine"


def test_settings_in_a_file(place: Place) -> None:
    lines = (
        f'backend = "anthropic:{UNUSED_URL}"',
        "[agents.claude]",
        f'model = "{MODEL}"',
        f'backend = "anthropic:{UNUSED_URL}/own"',
    )
    (place.work / "steno.toml").write_text("\n".join(lines))
    done = place.steno("run", "Do it.")
    assert done.returncode == 0, done.stderr
    (call,) = place.calls
    assert call["env"]["ANTHROPIC_BASE_URL"] == f"{UNUSED_URL}/own"
    assert call["argv"][call["argv"].index("--model") + 1] == MODEL


def test_backend_in_the_python_api(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.work)
    report = steno.run("Do it.", backend=f"anthropic:{UNUSED_URL}", model=MODEL)
    assert (report.verdict, report.cost) == ("success", Cost(0.0, "local"))


@pytest.mark.parametrize("name", [name for name, agent in AGENTS.items() if agent.launch.backends])
def test_no_agent_has_the_key_in_its_command_line(name: str) -> None:
    for kind in AGENTS[name].launch.backends:
        backend = Backend(kind=kind, url="http://127.0.0.1:1", key="sk-own-secret")
        command = AGENTS[name].launch.build_command(
            LaunchOptions(prompt="x", model=MODEL, backend=backend), name, NEWEST_PROGRAM
        )
        assert "sk-own-secret" not in " ".join(command.argv)
        assert "sk-own-secret" in dict(command.env).values()


# -- cost ------------------------------------------------------------------------------------------

LOCAL_ARGS = ("--backend", f"anthropic:{UNUSED_URL}", "--model", MODEL)


def ledger(place: Place, sql: str) -> list[Any]:
    with sqlite3.connect(place.data / "ledger.db") as database:
        return database.execute(sql).fetchall()


def run(place: Place, *args: str) -> dict[str, Any]:
    done = place.steno("run", "--json", *args, "Do it.")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_reported_cost_is_ignored(place: Place) -> None:
    """The agent reports the price of the vendor's model."""
    place.plan({"recording": str(NEWEST / "subagent_sync_env")})
    vendor = run(place)
    assert vendor["cost"]["usd"] > 0
    local = run(place, *LOCAL_ARGS)
    assert local["cost"] == {"usd": 0.0, "source": "local", "session_usd": None}
    assert {model["cost_usd"] for model in local["models"].values()} == {0.0}
    assert {agent["cost_usd"] for agent in local["subagents"]} == {0.0}
    assert (local["tokens"], local["verdict"]) == (vendor["tokens"], vendor["verdict"])


def test_a_replay_and_an_import_give_the_same_cost(place: Place) -> None:
    """The recording contains the backend."""
    place.plan({"recording": str(NEWEST / "multi_tool_edit")})
    responses = {"/v1/models": {"data": [{"id": MODEL, "max_model_len": 65_536}]}}
    with OllamaServer(told=responses) as server:
        live = run(place, "--backend", f"anthropic:{server.url}", "--model", MODEL)
    assert live["cost"]["source"] == "local"
    assert (live["context"]["limit"], live["context"]["limit_source"]) == (65_536, "reported")
    (recording,) = place.tapes
    report = json.loads(steno.read(recording).to_json())
    assert {name: live[name] for name in report} == report
    replay_args = ("--agent", "replay", "--recording", recording, "--speed", "0")
    replayed = json.loads(place.steno("run", "--json", *replay_args, "x").stdout)
    assert (replayed["cost"], replayed["context"]) == (live["cost"], live["context"])
    other = place.folder / "other.db"
    assert place.steno("ledger", "import", "--ledger", other, recording).returncode == 0
    with sqlite3.connect(other) as database:
        runs = database.execute("SELECT cost_nano, cost_source, context_limit FROM runs")
        assert runs.fetchall() == [(0, "local", 65_536)]
        requests = database.execute("SELECT DISTINCT cost_nano, source FROM requests")
        assert requests.fetchall() == [(0, "local")]


def test_the_ledger_stores_a_cost_of_zero(place: Place) -> None:
    """Not unknown, computed or reported."""
    place.plan({"recording": str(NEWEST / "multi_tool_edit")})
    run(place, *LOCAL_ARGS)
    assert ledger(place, "SELECT cost_nano, cost_source FROM runs") == [(0, "local")]
    assert ledger(place, "SELECT DISTINCT cost_nano, saved_nano, source FROM requests") == [
        (0, 0, "local")
    ]
    usage = json.loads(place.steno("usage", "--json", "--no-import", "model").stdout)
    cost = usage["total"]["cost"]
    assert (cost["usd"], cost["reported_usd"], cost["computed_usd"]) == (0.0, 0.0, 0.0)
    assert cost["unpriced_requests"] == 0
    (row,) = json.loads(place.steno("runs", "--json", "--no-import").stdout)["rows"]
    assert row["cost"] == {"usd": 0.0, "source": "local"}
    assert b"$0.00 on a local model server" in place.steno("show", row["run_id"]).stdout


def test_requests_found_only_in_the_transcript_cost_nothing(place: Place) -> None:
    run(place, *LOCAL_ARGS)
    ((start, end, session),) = ledger(place, "SELECT started_at, ended_at, session FROM runs")
    at = datetime.fromtimestamp(start / 1000, timezone.utc).isoformat()
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 7,
    }
    message = {
        "id": "msg_only_there",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [],
        "usage": usage,
    }
    line = {
        "type": "assistant",
        "sessionId": session,
        "timestamp": at,
        "uuid": "u1",
        "message": message,
        "cwd": "/x",
    }
    folder = place.home / ".claude" / "projects" / "x"
    folder.mkdir(parents=True)
    (folder / f"{session}.jsonl").write_text(json.dumps(line) + "\n")
    done = place.steno("ledger", "import")
    assert b"1 new requests" in done.stdout, done.stdout
    assert ledger(
        place, "SELECT cost_nano, source FROM requests WHERE message = 'msg_only_there'"
    ) == [(0, "local")]
    assert end >= start


def test_an_exhausted_budget_does_not_stop_local_runs(place: Place) -> None:
    """The agent's own cost limit is not passed on either."""
    assert place.steno("budget", "set", "day", "0.01", "--no-import").returncode == 0
    place.steno("run", "first")  # costs more than that
    assert place.steno("run", "second").returncode == 3
    done = place.steno("run", "--max-cost", "0.000001", *LOCAL_ARGS, "third")
    assert (done.returncode, len(place.calls)) == (0, 2)
    assert "--max-budget-usd" not in place.calls[1]["argv"]


def test_a_remote_server_is_not_free(place: Place) -> None:
    done = place.steno(
        "run",
        "--json",
        "--backend",
        "anthropic:https://127.0.0.1.example.invalid",
        "--model",
        MODEL,
        "Do it.",
    )
    assert json.loads(done.stdout)["cost"]["source"] == "reported"


def test_cost_of_several_attempts() -> None:
    """The sum is local only if all attempts are."""

    def cost(*costs: Cost) -> Cost:
        reports = [Report(requests=1, cost=cost) for cost in costs]
        return merge_reports(reports, [""] * len(costs), None).cost

    local = Cost(0.0, "local")
    reported = Cost(0.5, "reported")
    computed = Cost(0.25, "computed")
    assert cost(local, local) == local
    assert cost(local, reported) == reported
    assert cost(local, computed, reported) == Cost(0.75, "computed")
    assert cost(local, Cost()) == Cost(None, "unknown")
