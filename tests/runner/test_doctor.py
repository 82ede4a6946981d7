"""`steno doctor` with real files and a real ledger; keys are never shown."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steno.agents import AGENTS
from steno.runner.doctor import inspect_agent, version_status

SECRET = "sk-" + "x" * 30


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home and a folder of programs, both empty."""
    for name in ("home", "bin", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def install(place: Path, agent: str, version: str) -> None:
    """A program as npm lays it down: a link into its package."""
    package = place / "lib" / agent
    package.mkdir(parents=True)
    (package / "package.json").write_text(
        json.dumps({"name": AGENTS[agent].installation.npm_package, "version": version})
    )
    script(package / "cli.js", "exit 9")  # it must not be started to tell its version
    (place / "bin" / agent).symlink_to(package / "cli.js")


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(place: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    own = {
        "HOME": str(place / "home"),
        "PATH": f"{place / 'bin'}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-m", "steno", *words],
        env=own,
        cwd=place / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def findings(place: Path, *words: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, errors = run(place, "doctor", "--json", *words, **environment)
    assert errors == ""
    message = json.loads(out)
    assert (message["schema"], message["ok"]) == ("steno.doctor/1", code == 0)
    return code, message["findings"]


def test_what_is_installed_and_what_it_can_do(place: Path) -> None:
    install(place, "gemini", "0.61.0")
    install(place, "qwen", "0.99.0")
    _, out, _ = run(place, "doctor", "--json")
    message = {item["agent"]: item for item in json.loads(out)["agents"]}
    assert list(message) == ["claude", "codex", "copilot", "gemini", "opencode", "qwen"]
    assert (message["gemini"]["version"], message["gemini"]["known"]) == ("0.61.0", "tested")
    assert (message["qwen"]["version"], message["qwen"]["known"]) == ("0.99.0", "newer")
    assert (message["opencode"]["path"], message["opencode"]["known"]) == (None, "absent")
    assert (message["claude"]["backends"], message["gemini"]["backends"]) == (
        ["ollama", "anthropic"],
        [],
    )
    assert set(message["claude"]["abilities"]) == {
        "resume",
        "json",
        "partial",
        "budget",
        "schema",
        "context",
        "cost",
        "file_events",
    }


def test_a_table_for_people(place: Path) -> None:
    install(place, "gemini", "0.61.0")
    code, out, errors = run(place, "doctor", "--agents")
    assert (code, errors) == (0, "")
    row = next(line for line in out.splitlines() if line.startswith("gemini"))
    assert row.split() == ["gemini", "0.61.0", "yes", "yes", "yes", "yes", "-", "-", "-", "-", "-"]
    assert "to install opencode: npm install -g opencode-ai" in out


def test_a_program_without_a_package_is_asked_for_its_version(place: Path) -> None:
    script(place / "bin" / "opencode", "echo 1.18.33")
    message = {
        item["agent"]: item for item in json.loads(run(place, "doctor", "--json")[1])["agents"]
    }
    assert (message["opencode"]["version"], message["opencode"]["known"]) == ("1.18.33", "tested")


def test_a_program_that_leaves_another_behind_is_not_waited_for(place: Path) -> None:
    script(place / "bin" / "opencode", "sleep 65 & echo 1.18.33")
    assert inspect_agent(AGENTS["opencode"], {"PATH": str(place / "bin")}).version == "1.18.33"
    subprocess.run(["pkill", "-f", "^sleep 65$"], check=True)


def test_a_program_that_never_prints_its_version(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno.runner.doctor.VERSION_TIMEOUT_SECONDS", 0.2)
    script(place / "bin" / "opencode", "sleep 66; echo 1.18.33")
    result = inspect_agent(AGENTS["opencode"], {"PATH": str(place / "bin")})
    assert (result.version, result.known) == (None, "unknown")
    until = time.monotonic() + 60
    while (
        subprocess.run(
            ["pgrep", "-f", "^sleep 66$"], check=False, stdout=subprocess.DEVNULL
        ).returncode
        == 0
    ):
        assert time.monotonic() < until  # what it started goes with it
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("version", "word"),
    [
        ("2.1.325", "tested"),
        ("2.1.60", "between"),
        ("0.9", "older"),
        ("2.2.0", "newer"),
        (None, "unknown"),
    ],
)
def test_a_version_compared_with_those_tested(version: str | None, word: str) -> None:
    assert version_status(version, AGENTS["claude"].installation.tested_versions) == word


def test_every_agent_names_its_abilities_and_what_it_cannot() -> None:
    from steno.agents import LaunchOptions

    for agent in AGENTS.values():
        assert set(agent.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)
        assert agent.installation.tested_versions
        assert agent.installation.command.endswith(agent.installation.npm_package)
        assert agent.hints.resume.format(session="S", prompt="P").count("S") == 1


def test_without_the_chosen_agent_something_is_wrong(place: Path) -> None:
    code, result = findings(place)
    (wrong,) = (item for item in result if item["level"] == "problem")
    assert (code, wrong["check"], wrong["what"]) == (
        1,
        "claude",
        "not installed; it is the default agent",
    )
    assert wrong["remedy"] == "npm install -g @anthropic-ai/claude-code"


def test_with_it_nothing_is(place: Path) -> None:
    install(place, "claude", "2.1.325")
    code, result = findings(place)
    assert code == 0
    assert all(item["remedy"] for item in result if item["level"] != "ok")
    assert {item["check"] for item in result} >= {
        "settings",
        "claude",
        "gemini",
        "ledger",
        "prices",
        "disk",
    }


def test_the_chosen_agent_is_the_one_that_is_set(place: Path) -> None:
    install(place, "qwen", "0.15.10")
    assert findings(place, STENO_AGENT="qwen")[0] == 0


def test_a_sign_in_is_a_name_and_never_a_secret(place: Path) -> None:
    install(place, "claude", "2.1.325")
    install(place, "gemini", "0.61.0")
    stored = place / "home" / ".gemini" / "oauth_creds.json"
    stored.parent.mkdir()
    stored.write_text(json.dumps({"access_token": SECRET}))
    code, out, _ = run(place, "doctor", ANTHROPIC_API_KEY=SECRET)
    assert code == 0
    assert "credentials: ANTHROPIC_API_KEY" in out
    assert "credentials: ~/.gemini/oauth_creds.json" in out
    assert SECRET not in out + run(place, "doctor", "--json", ANTHROPIC_API_KEY=SECRET)[1]
    assert SECRET not in run(place, "doctor", "--agents", ANTHROPIC_API_KEY=SECRET)[1]


@pytest.mark.parametrize(
    ("agent", "kept"), [("codex", ".codex/auth.json"), ("copilot", ".config/gh/hosts.yml")]
)
def test_a_sign_in_that_is_a_file(place: Path, agent: str, kept: str) -> None:
    """Named by its path, and only where it is there."""
    install(place, agent, AGENTS[agent].installation.tested_versions[-1])
    message = [
        item["what"] for item in findings(place, STENO_AGENT=agent)[1] if item["check"] == agent
    ]
    assert "no credentials found" in message
    file = place / "home" / kept
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"token": SECRET}))
    code, out, _ = run(place, "doctor", STENO_AGENT=agent)
    assert (code, f"credentials: ~/{kept}" in out, SECRET in out) == (0, True, False)


def test_transcripts_are_found(place: Path) -> None:
    folder = place / "home" / ".gemini" / "tmp"
    folder.mkdir(parents=True)
    install(place, "claude", "2.1.325")
    assert any(item["what"] == f"transcripts in {folder}" for item in findings(place)[1])
    if os.getuid():  # root may read everything
        folder.chmod(0)
        assert findings(place)[0] == 1


def test_settings_that_cannot_be_read(place: Path) -> None:
    install(place, "claude", "2.1.325")
    (place / "work" / "steno.toml").write_text("max_turns = 'many'\n")
    code, result = findings(place)
    (wrong,) = (item for item in result if item["level"] == "problem")
    assert (code, wrong["check"], "steno.toml" in wrong["what"]) == (1, "settings", True)


def test_a_ledger_of_a_newer_version(place: Path) -> None:
    install(place, "claude", "2.1.325")
    path = place / "ledger.db"
    assert run(place, "ledger", "import", "--ledger", str(path))[0] == 0
    assert findings(place, "--ledger", str(path))[0] == 0
    with sqlite3.connect(path) as base:
        base.execute("INSERT INTO migrations VALUES (99, 'of the future', 0)")
    before = path.read_bytes()
    code, result = findings(place, "--ledger", str(path))
    (wrong,) = (item for item in result if item["level"] == "problem")
    assert (code, wrong["check"]) == (1, "ledger")
    assert "written by a newer steno" in wrong["what"]
    assert path.read_bytes() == before


def test_a_data_folder_that_cannot_be_made(place: Path) -> None:
    """What lies on the way to it is no folder."""
    (place / "file").write_text("")
    code, result = findings(place, XDG_DATA_HOME=str(place / "file" / "below"))
    (disk,) = [item for item in result if item["check"] == "disk"]
    description = f"{place}/file/below/steno: cannot be created: {place}/file is not a folder"
    assert (code, disk["level"], disk["what"]) == (1, "problem", description)


def test_unknown_events_of_the_last_runs(place: Path) -> None:
    install(place, "claude", "2.1.325")
    run_ = place / "work" / "run.jsonl"
    lines = [
        {
            "type": "init",
            "timestamp": "2026-11-15T06:42:36.493Z",
            "session_id": "b1e7d9dc-f51e-41c4-b9a8-291d8cedaa32",
            "model": "m",
        },
        *({"type": "novelty", "timestamp": "2026-11-15T06:42:36.493Z"} for _ in range(3)),
    ]
    run_.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ledger = str(place / "ledger.db")
    assert run(place, "ledger", "import", "--ledger", ledger, str(run_))[0] == 0
    code, result = findings(place, "--ledger", ledger)
    (note,) = (item for item in result if item["check"] == "events")
    assert (code, note["level"]) == (0, "note")
    assert note["what"] == "gemini: 3 events of unknown kinds in 1 of the last 1 runs"
    assert note["remedy"].startswith("show them: steno show ")


def test_wrong_use(place: Path) -> None:
    code, out, errors = run(place, "doctor", "--frob")
    assert (code, out) == (2, "")
    assert errors == "steno: unknown option --frob; see: steno doctor --help\n"
