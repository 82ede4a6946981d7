"""The suggested allow rules, applied to the real Claude Code: the denied call then succeeds.

Needs `make cli`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from steno.analysis.verdict import NO_ALLOW_RULE
from tests.support import claude, program
from tests.support.modelserver import ModelServer, call, say

MCP_SERVER = Path(__file__).parents[1] / "scripted_agents" / "mcp_server.py"
# Commands, and the rules for them. {up} is the folder above the working directory.
COMMANDS = [
    ("rm -rf build", "Bash(rm -rf build)"),
    ("cat a.txt | tee b.txt", "Bash(tee b.txt)"),
    ("touch x && rm x", "Bash(touch x) Bash(rm x)"),
    ("touch a\ntouch b; touch 'c; d'", "Bash(touch a) Bash(touch b) Bash(touch 'c; d')"),
    ("echo hi > out.txt", "Bash(echo hi) Edit(out.txt)"),
    ("cat a.txt > 'b c.txt' && touch k", "Bash(cat a.txt) Bash(touch k) Edit(b c.txt)"),
    ("sort a.txt | uniq >> ../u.txt", "Bash(sort a.txt) Bash(uniq) Edit(/{up}/u.txt)"),
    ("make 2>&1 | tail -5", "Bash(make)"),
    ("touch {up}/z", "Bash(touch {up}/z) Edit(/{up}/z)"),
    ("cat {up}/given.txt", "Bash(cat {up}/given.txt) Read(/{up}/given.txt)"),
    ("cd sub && touch y", "Bash"),
    ("touch l &", "Bash"),
    ("echo $(touch q)", "Bash(echo $(touch q))"),
    ("echo $(touch q) r", "Bash"),
    ("cat <<EOF > f.txt\nhi\nEOF", "Bash(cat <<EOF > f.txt\nhi\nEOF)"),
    ("python3 -c 'print(1), print(2)'", "Bash(python3 -c 'print(1)*print(2)')"),
]
FILES = [
    ("Write", "sub/x y.txt", "Edit(sub/x y.txt)"),
    ("Write", "sub/x (1) [2].txt", r"Edit(sub/x (1)?\[2\].txt)"),
    ("Write", "#a\\b.txt", r"Edit(\#a?b.txt)"),
    ("Write", "{up}/new.txt", "Edit(/{up}/new.txt)"),
    ("Read", "{up}/given.txt", "Read(/{up}/given.txt)"),
]
pytestmark = pytest.mark.parametrize("version", claude.VERSIONS)


def run(folder: Path, version: str, tool: str, given: dict[str, Any], *words: str) -> Any:
    """The report of a run with one call."""
    work = folder / "work"
    (work / "sub").mkdir(parents=True, exist_ok=True)
    (work / "a.txt").write_text("a\n")
    (work / "Makefile").write_text("all:\n\ttrue\n")
    (folder / "given.txt").write_text("given\n")
    with ModelServer(call(tool, **given), say("Done.")) as server:
        env: Any = claude.clean_env(folder / "home", server.url)
        (folder / "home").mkdir(exist_ok=True)
        done = program.steno(
            folder / "data",
            *("run", "--json", "--agent", "claude", "--program", claude.installed(version)),
            *("--attempts", "1", *words, "Do it."),
            cwd=work,
            **{name: value for name, value in env.items() if name != "PATH"},
        )
    assert done.out, done.err
    return json.loads(done.out)


def check_rule(
    folder: Path, version: str, tool: str, given: dict[str, Any], rule: str, *words: str
) -> None:
    """The call is denied, the suggestion is this rule, and with it the call succeeds."""
    denied = run(folder / "1", version, tool, given, *words)
    assert (denied["verdict"], [one["tool"] for one in denied["denials"]]) == ("permission", [tool])
    assert denied["denials"][0]["allow_rule"] == rule
    assert denied["hint"].startswith("to allow it: --allow ")
    allowed = run(folder / "1", version, tool, given, *words, "--allow", rule)
    assert allowed["denials"] == []
    assert [(one["ok"], one["error"]) for one in allowed["tools"]] == [(True, None)]


@pytest.mark.parametrize(("command", "rule"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command(tmp_path: Path, version: str, command: str, rule: str) -> None:
    up = str(tmp_path / "1")
    given = {"command": command.replace("{up}", up)}
    check_rule(tmp_path, version, "Bash", given, rule.replace("{up}", up))


@pytest.mark.parametrize(("tool", "path", "rule"), FILES, ids=[path for _, path, _ in FILES])
def test_a_file(tmp_path: Path, version: str, tool: str, path: str, rule: str) -> None:
    up = str(tmp_path / "1")
    given = {"file_path": path.replace("{up}", up)}
    if tool == "Write":
        given["content"] = "x\n"
    check_rule(tmp_path, version, tool, given, rule.replace("{up}", up))


def test_an_mcp_tool(tmp_path: Path, version: str) -> None:
    server = {"command": sys.executable, "args": [str(MCP_SERVER)]}
    config = json.dumps({"mcpServers": {"notes": server}})
    check_rule(
        tmp_path, version, "mcp__notes__note", {}, "mcp__notes__note", "--mcp-config", config
    )


HOOK = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("Bash", {"command": "touch x"}, ("--deny", "Bash")),
        ("Bash", {"command": "touch x"}, ("--deny", "Bash(touch:*)")),
        (
            "Bash",
            {"command": "touch x"},
            (),
        ),
        ("Write", {"file_path": ".git/x", "content": "x"}, ()),
        ("Write", {"file_path": ".claude/settings.json", "content": "{}"}, ()),
    ],
    ids=["deny tool", "deny command", "hook", "sensitive file", "settings"],
)
def test_no_rule_is_suggested_that_cannot_work(
    tmp_path: Path, version: str, tool: str, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    if tool == "Bash" and not words:
        settings = tmp_path / "home" / ".claude" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"hooks": {"PreToolUse": [HOOK]}}))
    report = run(tmp_path, version, tool, given, *words)
    assert [(one["tool"], one["allow_rule"]) for one in report["denials"]] == [(tool, None)]
    assert (report["verdict"], report["hint"]) == (
        "permission",
        NO_ALLOW_RULE,
    )
