"""`steno hooks`: the settings of Claude Code, the refusal of calls, and errors that refuse none."""

import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_place import Done, Place

POLICY = """forbid_tools = ["WebFetch"]
forbid_commands = ["git push", "rm -rf"]
allow_files = ["src/", "tests/"]
forbid_files = ["**/*.lock"]
"""
OWN = '{"hooks": [{"type": "command", "command": "lint"}]}'
SETTINGS = {
    "no file": "",
    "empty object": "{}",
    "spaced object": "{ }\n",
    "one line": '{"model": "opus", "env": {"A": "b"}}',
    "indented": '{\n    "model": "opus"\n}\n',
    "windows": '{\r\n\t"model": "opus"\r\n}\r\n',
    "empty hooks": '{\n  "hooks": {}\n}\n',
    "empty event": '{\n  "hooks": {\n    "Stop": []\n  },\n  "a": "}"\n}\n',
    "own hooks": '{\n  "hooks": {\n    "Stop": [\n      ' + OWN + "\n    ]\n  }\n}\n",
    "own gate": '{"hooks": {"PreToolUse": [ ' + OWN + " ]}}",
}
SCOPES = {
    "user": ("home", ".claude/settings.json"),
    "project": ("work", ".claude/settings.json"),
    "local": ("work", ".claude/settings.local.json"),
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def settings_file(place: Place, scope: str = "user") -> Path:
    folder, name = SCOPES[scope]
    return Path(getattr(place, folder)) / name


def content(path: Path) -> str:
    return path.read_bytes().decode() if path.exists() else ""


def commands(path: Path) -> dict[str, list[str]]:
    """The commands of all hooks by event."""
    hooks = json.loads(content(path))["hooks"]
    return {
        event: [hook["command"] for group in groups for hook in group["hooks"]]
        for event, groups in hooks.items()
    }


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_uninstall_restores_every_byte(place: Place, name: str) -> None:
    text = SETTINGS[name]
    path = settings_file(place)
    if text:
        path.parent.mkdir()
        path.write_bytes(text.encode())
    (place.work / "policy.toml").write_text(POLICY)
    ask = ("hooks", "install", "--policy", "policy.toml")
    asked = place.steno(*ask)
    message = b"steno: not confirmed, nothing was changed; to write it: --yes\n"
    assert (asked.returncode, asked.stderr, content(path)) == (2, message, text)
    refused = place.steno(*ask, stdin=b"n\n")
    assert (refused.returncode, refused.stderr, content(path)) == (0, b"", text)
    assert place.steno(*ask, stdin=b"y\n").returncode == 0
    assert "PreToolUse" in commands(path)
    assert place.steno("hooks", "uninstall", "--yes").returncode == 0
    assert content(path) == text
    install = ("hooks", "install", "--policy", "policy.toml", "--yes")
    assert place.steno(*install).returncode == 0
    found = commands(path)
    assert found["PreToolUse"][0].endswith(f"hooks run --policy {place.work / 'policy.toml'}")
    assert {found[event][0].endswith(" hooks run") for event in ("Stop", "SubagentStop")} == {True}
    before = json.loads(text or "{}").get("hooks", {})
    assert {event: found[event][1:] for event, groups in before.items() if groups} == {
        event: ["lint"] for event, groups in before.items() if groups
    }
    installed = content(path)
    assert place.steno(*install).stdout.decode() == f"{path}: already up to date\n"
    assert place.steno("hooks", "install", "--yes").returncode == 0  # without the policy
    assert "PreToolUse" not in commands(path) or commands(path)["PreToolUse"] == ["lint"]
    assert place.steno(*install).returncode == 0
    assert content(path) == installed
    assert place.steno("hooks", "uninstall", "--yes").returncode == 0
    assert (content(path), path.exists()) == (text, bool(text))
    assert place.steno("hooks", "uninstall").stdout.decode() == f"{path}: unchanged\n"


def test_hooks_added_meanwhile_stay(place: Place) -> None:
    """Also without the note of what `install` created, such as on another machine."""
    path = settings_file(place)
    place.steno("hooks", "install", "--yes")
    settings = json.loads(content(path))
    settings["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "mine"})
    settings["hooks"]["SessionEnd"].append(json.loads(OWN))
    path.write_text(json.dumps(settings, indent=2))
    (place.data / "hooks-created.json").unlink()
    assert place.steno("hooks", "uninstall", "--yes").returncode == 0
    assert commands(path) == {"Stop": ["mine"], "SessionEnd": ["lint"]}


def test_status_names_the_scopes(place: Place) -> None:
    (place.work / "policy.toml").write_text(POLICY)
    words = ("--scope", "project", "--policy", "policy.toml", "--fail-closed", "--yes")
    assert place.steno("hooks", "install", *words).returncode == 0
    rows = json.loads(place.steno("hooks", "status", "--json").stdout)["rows"]
    gate = 'steno hooks run --policy "$CLAUDE_PROJECT_DIR"/policy.toml --fail-closed'
    record = "steno hooks run"
    assert rows == [
        {"scope": "user", "path": str(settings_file(place)), "installed": False, "events": {}},
        {
            "scope": "project",
            "path": str(settings_file(place, "project")),
            "installed": True,
            "events": {
                "PreToolUse": gate,
                "Stop": record,
                "SubagentStop": record,
                "SessionEnd": record,
            },
        },
        {
            "scope": "local",
            "path": str(settings_file(place, "local")),
            "installed": False,
            "events": {},
        },
    ]
    text = place.steno("hooks", "status").stdout.decode()
    assert "PreToolUse, Stop, SubagentStop, SessionEnd" in text
    assert text.endswith(f"calls are checked by: {gate}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["install", "--policy", "none.toml"], "none.toml: no such file"),
        (["install", "--policy", "cost.toml"], "cost.toml: no rule about a call; use allow_tools"),
        (["install", "--policy", "typo.toml"], "typo.toml:1:1: unknown rule 'forbid_tool'"),
        (["install", "--fail-closed"], "--fail-closed needs --policy FILE"),
        (["uninstall", "--policy", "x"], "--policy and --fail-closed are options of install"),
        (["instal"], "expected one of install, uninstall, status; found 'instal'"),
    ],
)
def test_wrong_use_is_one_line(place: Place, words: list[str], reason: str) -> None:
    (place.work / "cost.toml").write_text("max_cost = 1\n")
    (place.work / "typo.toml").write_text('forbid_tool = ["x"]\n')
    done = place.steno("hooks", *words, "--yes")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert reason in done.stderr.decode()
    assert not settings_file(place).exists()


def test_rules_that_are_not_about_calls_are_named(place: Place) -> None:
    (place.work / "policy.toml").write_text(f"max_cost = 1\n{POLICY}[across]\nmin_runs = 2\n")
    done = place.steno("hooks", "install", "--policy", "policy.toml", "--yes")
    assert done.stderr.decode() == (
        "steno: policy.toml: not about single calls, ignored by hooks: max_cost, across\n"
    )


def test_other_shapes_of_hooks_are_left_alone(place: Place) -> None:
    path = settings_file(place)
    path.parent.mkdir()
    for text, reason in (
        ('{"hooks": []}', "`hooks` is not an object; fix it first"),
        ('{"hooks": {"Stop": {}}}', "`hooks.Stop` is not an array; fix it first"),
    ):
        path.write_text(text)
        done = place.steno("hooks", "install", "--yes")
        assert (done.returncode, content(path)) == (2, text)
        assert done.stderr.decode() == f"steno: {path}: {reason}\n"


# -- refusals ------------------------------------------------------------------------------------


def ask(place: Place, payload: Any, *words: str, policy: str = POLICY) -> Done:
    """Call the hook as Claude Code does."""
    (place.folder / "policy.toml").write_text(policy)
    stdin = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    gate = ("--policy", str(place.folder / "policy.toml"), *words)
    return place.steno("hooks", "run", *gate, stdin=stdin)


def tool_call(place: Place, tool: str, **tool_input: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "hook_event_name": "PreToolUse",
        "cwd": str(place.work),
        "tool_name": tool,
        "tool_input": tool_input,
    }


def reason(done: Done) -> str | None:
    """The reason of a refusal; None if the call is not refused."""
    assert (done.returncode, done.stderr) == (0, b"")
    if not done.stdout:
        return None
    output = json.loads(done.stdout)["hookSpecificOutput"]
    assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
    return str(output["permissionDecisionReason"])


def test_paths_are_those_of_the_project(place: Place) -> None:
    """Relative to where the session is; `~` is the home; rules are relative to the project."""
    policy = f'forbid_files = ["src/a/", "{place.home}/.ssh"]\n'
    payload = {**tool_call(place, "Write", file_path="x"), "cwd": f"{place.work}/src/a"}
    gate = ("hooks", "run", "--policy", place.folder / "policy.toml")
    (place.folder / "policy.toml").write_text(policy)
    place.environ["CLAUDE_PROJECT_DIR"] = str(place.work)
    found = place.steno(*gate, stdin=json.dumps(payload).encode())
    assert "): src/a/x [" in (reason(found) or "")
    payload = tool_call(place, "Write", file_path="~/.ssh/config")
    assert f"): {place.home}/.ssh/config [" in (reason(ask(place, payload, policy=policy)) or "")


def test_calls_that_break_a_rule_are_refused(place: Place) -> None:
    (place.work / "src").mkdir()
    (place.work / "src" / "out").symlink_to(place.home)
    expected = {
        ("WebFetch", "url", "http://x"): "forbid_tools (WebFetch): WebFetch",
        ("Bash", "command", "ls; git push -f"): (
            "forbid_commands (git push, rm -rf): ls; git push -f"
        ),
        ("Write", "file_path", f"{place.work}/docs/a.md"): (
            "allow_files (src/, tests/): docs/a.md"
        ),
        ("Write", "file_path", f"{place.work}/src/../../x"): (
            f"allow_files (src/, tests/): {place.folder}/x"
        ),
        ("Edit", "file_path", "src/out/x"): f"allow_files (src/, tests/): {place.home}/x",
        ("Edit", "file_path", "src/uv.lock"): "forbid_files (**/*.lock): src/uv.lock",
        ("NotebookEdit", "notebook_path", "nb.ipynb"): "allow_files (src/, tests/): nb.ipynb",
    }
    found = {
        case: reason(ask(place, tool_call(place, case[0], **{case[1]: case[2]})))
        for case in expected
    }
    assert found == {
        case: f"refused by the rule {text} [steno, policy.toml]" for case, text in expected.items()
    }


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Bash", {"command": "git status"}),
        ("Read", {"file_path": "/etc/passwd"}),  # rules about files are about changes
        ("Edit", {"file_path": "src/a.py"}),
        ("mcp__x__y", {"command": "git push"}),
        ("Bash", {"command": ["git push"]}),
    ],
)
def test_other_calls_are_not_refused(place: Place, tool: str, tool_input: dict[str, Any]) -> None:
    is_list = isinstance(tool_input.get("command"), list)
    found = reason(ask(place, tool_call(place, tool, **tool_input)))
    assert (found is not None) == is_list  # a command as a list is one, too


HOSTILE = {
    "empty": b"",
    "no JSON": b"\x00\xff{",
    "array": b"[]",
    "deep": b"[" * 200_000,
    "types": b'{"tool_name": 3}',
    "no tool": b'{"hook_event_name": "PreToolUse"}',
    "input": b'{"tool_name": "Write", "tool_input": [1]}',
    "path": b'{"tool_name": "Write", "tool_input": {"file_path": {"a": 1}}}',
    "escapes": b'{"tool_name": "\\u001b]0;x\\u0007", "tool_input": 1e999',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_error_of_ours_refuses_nothing_unless_asked_to(place: Place, name: str) -> None:
    done = ask(place, HOSTILE[name])
    assert (done.returncode, done.stdout) == (1, b"")  # 2 would refuse the call
    assert done.stderr.startswith(b"steno: hooks: the policy was not checked: ")
    assert (done.stderr.count(b"\n"), b"\x1b" in done.stderr) == (1, False)
    closed = ask(place, HOSTILE[name], "--fail-closed")
    assert closed.returncode == 0
    text = json.loads(closed.stdout)["hookSpecificOutput"]["permissionDecisionReason"]
    assert text.startswith("refused: the policy could not be checked: ")


def test_a_policy_that_cannot_be_read(place: Place) -> None:
    payload = tool_call(place, "Bash", command="ls")
    done = ask(place, payload, policy="nonsense = 1\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"policy.toml:1:1: unknown rule 'nonsense'" in done.stderr
    closed = ask(place, payload, "--fail-closed", policy="nonsense = 1\n")
    assert b"unknown rule 'nonsense'" in closed.stdout


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b'{"transcript_path": 5}', b'{"transcript_path": "/dev/zero"}', b"{}"],
)
def test_recording_never_stops_claude(place: Place, payload: bytes) -> None:
    done = place.steno("hooks", "run", stdin=payload)
    assert (done.returncode in (0, 1), done.stdout) == (True, b"")
    assert not (place.data / "ledger.db").exists()


def test_words_that_this_version_does_not_know_refuse_nothing(place: Place) -> None:
    done = place.steno("hooks", "run", "--policy", stdin=b"{}")
    assert (done.returncode, done.stdout) == (1, b"")
    done = place.steno("hooks", "run", "--later", stdin=b"{}")
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_refusal_is_quick(place: Place) -> None:
    """About 80 ms of CPU time, five times that of an empty Python; a slow machine fails no test."""
    payload = json.dumps(tool_call(place, "Bash", command="git push")).encode()
    (place.folder / "policy.toml").write_text(POLICY)
    gate = place.command("hooks", "run", "--policy", place.folder / "policy.toml")
    empty = [sys.executable, "-c", "pass"]

    def cpu_seconds(words: list[str]) -> float:
        best = 9.0
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, input=payload, env=place.environ, check=True, stdout=-3)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best = min(best, used)
        return best

    ratio = cpu_seconds(gate) / cpu_seconds(empty)
    assert ratio < 12, shlex.join(gate)
