"""`steno check` and `steno run --policy` as commands."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import program
from tests.support.claude_lines import RECORDINGS

CLAUDE = RECORDINGS / "claude/2.1.325"
EDIT, DENIED = CLAUDE / "multi_tool_edit", CLAUDE / "permission_denied"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def steno(data: Path, *words: str | Path, cwd: Path | None = None) -> tuple[int, str, str]:
    done = program.steno(data, *map(str, words), cwd=cwd or data.parent)
    return done.code, done.out, done.err


def test_findings_of_files(data: Path) -> None:
    code, out, err = steno(data, "check", EDIT, DENIED, "--rule", "max_denials=0")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"✓ {EDIT}  success · claude-opus-5-5 · $0.0821",
        f"✗ {DENIED}  permission · claude-opus-5-5 · $0.0221",
        "    max_denials  denied calls 2, limit 0 (lines 5, 7)",
        "2 runs checked, 1 failed (1 finding)",
    ]


def test_json(data: Path) -> None:
    code, out, _ = steno(data, "check", "--json", DENIED, "--rule", "verdict=success")
    assert (code, json.loads(out)) == (
        1,
        {
            "schema": "steno.check/1",
            "ok": False,
            "runs": [
                {
                    "source": str(DENIED),
                    "run_id": None,
                    "verdict": "permission",
                    "reason": "2 calls denied (Write, Bash)",
                    "cost_usd": 0.022099,
                    "ok": False,
                    "findings": [
                        {
                            "rule": "verdict",
                            "message": "verdict permission",
                            "actual": "permission",
                            "expected": ["success"],
                            "lines": [5, 7],
                            "paths": [],
                        }
                    ],
                }
            ],
            "across": [],
        },
    )


def test_the_ledger_gives_the_same_findings(data: Path) -> None:
    """Commands, files and figures, by ID, by filter and with a baseline."""
    assert steno(data, "ledger", "import", EDIT, DENIED)[0] == 0
    rules = ("--rule", "forbid_commands=git status", "--rule", 'allow_files=["src/"]')
    code, out, _ = steno(data, "check", "--json", "--last", "5", "--all", *rules)
    found = {
        run["verdict"]: [(finding["rule"], finding["message"]) for finding in run["findings"]]
        for run in json.loads(out)["runs"]
    }
    assert (code, found) == (
        1,
        {
            "success": [
                (
                    "forbid_commands",
                    "ran: git status --short; python3 -c 'print(6*7)'; echo warn >&2",
                ),
                ("allow_files", "changed: nb.ipynb"),
            ],
            "permission": [],
        },
    )
    id_ = json.loads(steno(data, "runs", "--json")[1])["rows"][0]["run_id"]
    assert steno(data, "check", id_, "--rule", "max_cost=1")[0] == 0
    assert steno(data, "check", "--last", "5", "--all", "--save-baseline", "main")[0] == 0
    assert steno(data, "check", "--last", "5", "--all", "--baseline", "main")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "x.jsonl"], "no rules: use --policy FILE, --rule NAME=VALUE, or create"),
        (["check", "--rule", "max_cost=1"], "nothing to check: name a file or run"),
        (["check", "x.jsonl", "--rule", "max_cost"], "expected NAME=VALUE"),
        (["check", "x.jsonl", "--rule", "max_cost=much"], "max_cost: expected"),
        (["check", "none.jsonl", "--rule", "max_cost=1"], "none.jsonl"),
        (["check", "--policy", "none.toml", "x"], "none.toml: no such file"),
        (["check", "abcd1234", "--rule", "max_cost=1"], "abcd1234: no such file"),
        (["run", "--policy", "none.toml", "hi"], "none.toml: no such file"),
    ],
)
def test_wrong_use(words: list[str], message: str, data: Path) -> None:
    code, out, err = steno(data, *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_rules_are_listed(data: Path) -> None:
    code, out, _ = steno(data, "check", "--list-rules", "--json")
    rows = json.loads(out)["rows"]
    assert (code, set(rows[0])) == (0, {"rule", "checks", "example"})
    assert "max_cost" in steno(data, "check", "--list-rules")[1]


def test_an_agent_outside_its_folder_fails_the_pipeline(tmp_path: Path, data: Path) -> None:
    """The policy of the tutorial: five lines in an empty folder."""
    shutil.copy(RECORDINGS.parents[1] / "examples/policy.toml", tmp_path / "steno-policy.toml")
    code, out, _ = steno(data, "check", EDIT, cwd=tmp_path)
    assert (code, out.splitlines()[1]) == (1, "    allow_files  changed: nb.ipynb (line 22)")


def test_a_run_is_checked_at_its_end(tmp_path: Path, data: Path) -> None:
    """A rule that only the whole run can break: verdict success, exit code 1, not `ok`."""
    (tmp_path / "p.toml").write_text('require_text = "never said"\n')
    words = ("run", "--json", "--agent", "replay", "--recording", EDIT, "--speed", "0")
    code, out, _ = steno(data, *words, "--policy", tmp_path / "p.toml", "hi")
    report = json.loads(out)
    assert (code, report["verdict"], report["ok"]) == (1, "success", False)
    assert report["warnings"] == ["policy: require_text: missing in the answer: never said"]


def test_a_broken_rule_stops_the_run(tmp_path: Path, data: Path) -> None:
    """A replayed run at its own speed would sleep for minutes after the forbidden call."""
    script = tmp_path / "agent"
    lines = (EDIT / "stdout").read_text().splitlines()[:23]
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    script.write_text(f"#!/bin/sh\ncat {tmp_path / 'lines'}\nexec sleep 600\n")
    script.chmod(0o755)
    (tmp_path / "p.toml").write_text('forbid_commands = ["git status"]\n')
    policy = ("--policy", tmp_path / "p.toml")
    code, out, _ = steno(
        data, "run", "--json", "--program", script, "--attempts", "3", *policy, "hi"
    )
    report = json.loads(out)
    assert (code, report["verdict"], len(report["attempts"])) == (3, "policy", 1)
    assert report["error"] == (
        "stopped by a policy: forbid_commands: ran: git status --short; "
        "python3 -c 'print(6*7)'; echo warn >&2"
    )
    found = subprocess.run(["pgrep", "-f", str(script)], capture_output=True, check=False)
    assert found.stdout == b""
