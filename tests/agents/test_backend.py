"""`--backend`: what is meant, what the server tells, what is refused before anything starts, and what it costs: nothing."""

import json
import socket
import sqlite3
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS, Backend, LaunchOptions
from steno.agents.backend import is_local_url, parse_backend
from steno.report import Cost, Report
from steno.runner import backend_probe as serving
from steno.runner.task_report import merge_reports
from tests.support.ollama import MODEL, OllamaServer, shown
from tests.support.scripted_place import NEWEST, Place

GONE = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- what is meant -----------------------------------------------------------------------------------------------------

MEANT = {
    "ollama": ("ollama", "http://127.0.0.1:11434"),
    "ollama:http://gpu:11434/": ("ollama", "http://gpu:11434"),
    "ollama:http://gpu:11434/v1": ("ollama", "http://gpu:11434"),
    "openai:http://127.0.0.1:8000": ("openai", "http://127.0.0.1:8000/v1"),
    "openai:http://127.0.0.1:8000/v1/": ("openai", "http://127.0.0.1:8000/v1"),
    "openai:http://127.0.0.1:8000/api/v3": ("openai", "http://127.0.0.1:8000/api/v3"),
    "anthropic:http://127.0.0.1:8000/v1": ("anthropic", "http://127.0.0.1:8000"),
    "anthropic:https://gateway.example/claude": ("anthropic", "https://gateway.example/claude"),
}


@pytest.mark.parametrize("given", MEANT)
def test_what_is_meant(given: str) -> None:
    found = parse_backend(given, MODEL)
    assert (found.kind, found.url) == MEANT[given]


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
def test_ollamas_own_variable_is_heeded(host: str, url: str) -> None:
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
def test_only_what_stands_in_ones_own_house_costs_nothing(url: str, local: bool) -> None:
    assert is_local_url(url) is local


def test_a_model_that_ollama_hands_on_is_not_local() -> None:
    assert not parse_backend("ollama", "gpt-oss:120b-cloud").is_local
    assert parse_backend("ollama", "gpt-oss:20b").is_local


# -- what the server tells ---------------------------------------------------------------------------------------------

ALIKE = {"id": "another", "context_length": 1}
TOLD: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "ollama, in memory": ("ollama:URL", shown(num_ctx=32_768, loaded=8_192), 8_192),
    "ollama, as it will be loaded": ("ollama:URL", shown(num_ctx=32_768), 32_768),
    "ollama, as it was made": ("ollama:URL", shown(), 131_072),
    "ollama, without this model": ("ollama:URL", {"/api/ps": {"models": []}}, None),
    "vLLM": (
        "openai:URL/v1",
        {"/v1/models": {"data": [ALIKE, {"id": MODEL, "max_model_len": 65_536}]}},
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


@pytest.mark.parametrize("name", TOLD)
def test_the_window_comes_from_the_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for the world is not asked for what stands in one's own house."""
    given, told, window = TOLD[name]
    monkeypatch.setenv("http_proxy", GONE)
    with OllamaServer(told=told) as server:
        found, note = serving.probe_backend(
            parse_backend(given.replace("URL", server.url), MODEL), MODEL
        )
    assert (found.context_window, note) == (window, None)


def test_a_key_comes_along_where_there_is_one() -> None:
    with OllamaServer() as server:
        serving.probe_backend(parse_backend(f"ollama:{server.url}", MODEL, key="sk-own"), MODEL)
        serving.probe_backend(parse_backend(f"ollama:{server.url}", MODEL), MODEL)
        assert [seen.key for seen in server.seen] == ["sk-own", "sk-own", None, None]


def test_a_key_is_not_carried_to_where_a_server_sends_us() -> None:
    with OllamaServer() as other:
        told = {"/api/ps": f"{other.url}/api/ps", "/api/show": f"{other.url}/api/show"}
        with OllamaServer(told=told) as server:
            _, note = serving.probe_backend(
                parse_backend(f"ollama:{server.url}", MODEL, key="sk-own"), MODEL
            )
        assert (other.seen, note) == (
            [],
            f"ollama at {server.url}: context window of {MODEL} unknown: HTTP 302 Found",
        )


SILENT: dict[str, tuple[dict[str, Any], str]] = {
    "never": ({"/api/ps": "silence"}, "no response in time"),
    "garbage": (
        {"/api/ps": b"<html>", "/api/show": b"<html>"},
        "JSON is malformed: invalid character (byte 0)",
    ),
    "deep": ({"/api/ps": b"[" * 100_000}, "the response is nested too deeply"),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_server_that_does_not_tell_is_a_note(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And never more than that: the run goes on."""
    told, why = SILENT[name]
    monkeypatch.setattr(serving, "PROBE_TIMEOUT_SECONDS", 0.5)
    with OllamaServer(told=told) as server:
        asked = parse_backend(f"ollama:{server.url}", MODEL)
        found, note = serving.probe_backend(asked, MODEL)
        assert found == asked
        assert note is not None
        assert note.startswith(f"ollama at {server.url}: context window of {MODEL} unknown: {why}")


def test_a_server_that_is_not_there_is_a_note() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    asked = parse_backend(f"openai:{url}", MODEL)
    assert serving.probe_backend(asked, MODEL) == (
        asked,
        f"openai at {url}/v1: context window of {MODEL} unknown: Connection refused",
    )


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused(place: Place, *words: str, **environ: str) -> str:
    """The one line of a command that started nothing and wrote nothing."""
    done = place.steno("run", *words, "Do it.", stdin=None, cwd=None, **environ)
    assert (done.stdout, done.returncode, place.calls, place.data.exists()) == (b"", 2, [], False)
    (line,) = done.stderr.decode().splitlines()
    return line


def test_an_agent_that_does_not_speak_it_says_so_before_anything_starts(place: Place) -> None:
    assert refused(place, "--agent", "gemini", "--backend", "ollama", "--model", MODEL) == (
        "steno: --backend ollama: not supported by gemini; it only uses its vendor's servers"
    )
    assert refused(place, "--backend", f"openai:{GONE}", "--model", MODEL) == (
        f"steno: --backend openai:{GONE}: not supported by claude; supported: ollama, anthropic:URL"
    )
    assert refused(
        place, "--agent", "codex", "--model", MODEL, STENO_BACKEND=f"anthropic:{GONE}"
    ) == (
        f"steno: STENO_BACKEND anthropic:{GONE}: not supported by codex; supported: ollama, openai:URL"
    )


def test_it_needs_a_model(place: Place) -> None:
    assert (
        refused(place, "--backend", "ollama")
        == "steno: --backend ollama: a model is required: --model NAME"
    )


@pytest.mark.parametrize(
    "given",
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
def test_an_address_that_is_none(place: Place, given: str) -> None:
    assert refused(place, "--backend", given, "--model", MODEL).startswith(
        "steno: --backend: expected ollama, ollama:URL,"
    )


def test_a_secret_in_an_address_is_refused_and_not_told(place: Place) -> None:
    line = refused(
        place, "--backend", "openai:http://me:sk-own-secret@gpu:8000/v1", "--model", MODEL
    )
    assert "without user, password or query; set STENO_BACKEND_KEY for an API key" in line
    assert "sk-own-secret" not in line


def test_a_recording_that_is_played_asks_no_model(place: Place) -> None:
    words = (
        "--agent",
        "replay",
        "--recording",
        str(NEWEST / "multi_tool_edit"),
        "--backend",
        "ollama",
        "--model",
        MODEL,
    )
    assert refused(place, *words) == "steno: --backend ollama: a replay uses no model server"


# -- how an agent is led there -----------------------------------------------------------------------------------------


def test_a_key_is_never_in_the_command_line_or_on_the_tape(place: Place) -> None:
    """And that of the agent's maker stays at home."""
    with OllamaServer() as server:
        words = ("run", "--json", "--backend", f"ollama:{server.url}", "--model", MODEL, "Do it.")
        done = place.steno(
            *words, STENO_BACKEND_KEY="sk-own-secret", ANTHROPIC_API_KEY="sk-ant-of-the-maker"
        )
    (call,) = place.calls
    assert call["env"]["ANTHROPIC_AUTH_TOKEN"] == "sk-own-secret"
    assert (call["env"]["ANTHROPIC_BASE_URL"], call["env"]["ANTHROPIC_API_KEY"]) == (server.url, "")
    assert {call["env"][name] for name in call["env"] if name.endswith("_MODEL")} == {MODEL}
    (tape,) = place.tapes
    for hidden in (b"sk-own-secret", b"sk-ant-of-the-maker"):
        assert (
            hidden
            not in tape.read_bytes() + done.stdout + done.stderr + json.dumps(call["argv"]).encode()
        )
        assert hidden not in (place.data / "ledger.db").read_bytes()


def test_what_a_person_sets_beside_it_wins(place: Place) -> None:
    place.steno(
        "run",
        "--backend",
        f"anthropic:{GONE}",
        "--model",
        MODEL,
        "--env",
        "ANTHROPIC_AUTH_TOKEN=mine",
        "Do it.",
    )
    (call,) = place.calls
    assert call["env"]["ANTHROPIC_AUTH_TOKEN"] == "mine"


def test_it_is_set_in_a_file_for_one_agent_or_for_all(place: Place) -> None:
    text = f'backend = "anthropic:{GONE}"\n[agents.claude]\nmodel = "{MODEL}"\nbackend = "anthropic:{GONE}/own"\n'
    (place.work / "steno.toml").write_text(text)
    done = place.steno("run", "Do it.")
    assert done.returncode == 0, done.stderr
    (call,) = place.calls
    assert (call["env"]["ANTHROPIC_BASE_URL"], call["argv"][call["argv"].index("--model") + 1]) == (
        f"{GONE}/own",
        MODEL,
    )


def test_the_library_has_it_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.work)
    report = steno.run("Do it.", backend=f"anthropic:{GONE}", model=MODEL)
    assert (report.verdict, report.cost) == ("success", Cost(0.0, "local"))


@pytest.mark.parametrize("name", [name for name, agent in AGENTS.items() if agent.launch.backends])
def test_every_agent_keeps_the_key_out_of_its_words(name: str) -> None:
    for kind in AGENTS[name].launch.backends:
        given = Backend(kind=kind, url="http://127.0.0.1:1", key="sk-own-secret")
        start = AGENTS[name].launch.build_command(
            LaunchOptions(prompt="x", model=MODEL, backend=given), name, None
        )
        assert "sk-own-secret" not in " ".join(start.argv)
        assert "sk-own-secret" in dict(start.env).values()


# -- what it costs -----------------------------------------------------------------------------------------------------

LED = ("--backend", f"anthropic:{GONE}", "--model", MODEL)


def ledger(place: Place, sql: str) -> list[Any]:
    with sqlite3.connect(place.data / "ledger.db") as found:
        return found.execute(sql).fetchall()


def run(place: Place, *words: str) -> dict[str, Any]:
    done = place.steno("run", "--json", *words, "Do it.")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_the_agent_says_of_dollars_is_not_taken(place: Place) -> None:
    """It counts as if its maker's model had answered."""
    place.plan({"recording": str(NEWEST / "subagent_sync_env")})
    own = run(place)
    assert own["cost"]["usd"] > 0
    local = run(place, *LED)
    assert local["cost"] == {"usd": 0.0, "source": "local", "session_usd": None}
    assert {model["cost_usd"] for model in local["models"].values()} == {0.0}
    assert {agent["cost_usd"] for agent in local["subagents"]} == {0.0}
    assert (local["tokens"], local["verdict"]) == (own["tokens"], own["verdict"])


def test_replay_says_the_same(place: Place) -> None:
    """Live is replay: the tape knows the server, also where it is played once more, or imported elsewhere."""
    place.plan({"recording": str(NEWEST / "multi_tool_edit")})
    told = {"/v1/models": {"data": [{"id": MODEL, "max_model_len": 65_536}]}}
    with OllamaServer(told=told) as server:
        live = run(place, "--backend", f"anthropic:{server.url}", "--model", MODEL)
    assert (live["cost"]["source"], live["context"]["limit"], live["context"]["limit_source"]) == (
        "local",
        65_536,
        "reported",
    )
    (tape,) = place.tapes
    read = json.loads(steno.read(tape).to_json())
    assert {name: live[name] for name in read} == read
    again = json.loads(
        place.steno(
            "run", "--json", "--agent", "replay", "--recording", tape, "--speed", "0", "x"
        ).stdout
    )
    assert (again["cost"], again["context"]) == (live["cost"], live["context"])
    other = place.folder / "other.db"
    assert place.steno("ledger", "import", "--ledger", other, tape).returncode == 0
    with sqlite3.connect(other) as found:
        assert found.execute(
            "SELECT cost_nano, cost_source, context_limit FROM runs"
        ).fetchall() == [(0, "local", 65_536)]
        assert found.execute("SELECT DISTINCT cost_nano, source FROM requests").fetchall() == [
            (0, "local")
        ]


def test_in_the_ledger_it_is_a_known_nothing(place: Place) -> None:
    """Neither unknown nor computed nor reported."""
    place.plan({"recording": str(NEWEST / "multi_tool_edit")})
    run(place, *LED)
    assert ledger(place, "SELECT cost_nano, cost_source FROM runs") == [(0, "local")]
    assert ledger(place, "SELECT DISTINCT cost_nano, saved_nano, source FROM requests") == [
        (0, 0, "local")
    ]
    cost = json.loads(place.steno("usage", "--json", "--no-import", "model").stdout)["total"][
        "cost"
    ]
    assert (cost["usd"], cost["reported_usd"], cost["computed_usd"], cost["unpriced_requests"]) == (
        0.0,
        0.0,
        0.0,
        0,
    )
    (row,) = json.loads(place.steno("runs", "--json", "--no-import").stdout)["rows"]
    assert row["cost"] == {"usd": 0.0, "source": "local"}
    assert b"$0.00 on a local model server" in place.steno("show", row["run_id"]).stdout


def test_a_transcript_of_it_stays_at_nothing(place: Place) -> None:
    """What only the agent's own file shows of the same session, while the run went on, is as free as the rest."""
    run(place, *LED)
    (begun, ended, session) = ledger(place, "SELECT started_at, ended_at, session FROM runs")[0]
    at = datetime.fromtimestamp(begun / 1000, timezone.utc).isoformat()
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
    assert ended >= begun


def test_budgets_let_it_through(place: Place) -> None:
    """A budget that is used up stops what costs something; the agent's own limit in dollars is not passed on."""
    assert place.steno("budget", "set", "day", "0.01", "--no-import").returncode == 0
    place.steno("run", "first")  # costs more than that
    assert place.steno("run", "second").returncode == 3
    done = place.steno("run", "--max-cost", "0.000001", *LED, "third")
    assert (done.returncode, len(place.calls)) == (0, 2)
    assert "--max-budget-usd" not in place.calls[1]["argv"]


def test_a_server_of_somebody_else_is_not_free(place: Place) -> None:
    """What it costs is not known here: the price table's word, or none."""
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


def test_attempts_together() -> None:
    """Only what is local throughout is local; what cost nothing changes no other sum."""

    def cost(*given: Cost) -> Cost:
        return merge_reports(
            [Report(requests=1, cost=one) for one in given], [""] * len(given), None
        ).cost

    local, reported, computed = Cost(0.0, "local"), Cost(0.5, "reported"), Cost(0.25, "computed")
    assert cost(local, local) == local
    assert cost(local, reported) == reported
    assert cost(local, computed, reported) == Cost(0.75, "computed")
    assert cost(local, Cost()) == Cost(None, "unknown")
