"""`steno repeat`: real processes in real worktrees, with scripted and replayed agents."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steno.views.repeat import histogram
from tests.support.claude_lines import assistant, call, init, stream, text
from tests.support.scripted_place import NEWEST, Done, Json, Place, done_well

EDIT, DENIED = NEWEST / "multi_tool_edit", NEWEST / "permission_denied"
REPLAY = ("--agent", "replay", "--recording", EDIT, "--speed", "0", "hi")
LONG = 60.0  # seconds; for slow machines


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place whose working directory is a git repository with one commit."""
    place = Place(tmp_path)
    (place.work / "a.txt").write_text("a\n")
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return place


def git(place: Place, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=place.work, env=place.environ, capture_output=True, check=True
    )
    return done.stdout.decode()


def repeat(place: Place, *words: Any) -> tuple[int, Json, str]:
    done = place.steno("repeat", *words)
    return done.returncode, json.loads(done.stdout), done.stderr.decode()


def figures(found: Json) -> Json:
    return {name: found["statistics"][name] for name in ("runs", "succeeded", "verdicts")}


def test_runs_are_tagged_and_have_their_own_worktrees(place: Place) -> None:
    code, found, err = repeat(place, "3", "--json", "--", "--tag", "team=core", *REPLAY)
    assert (code, found["ok"], found["schema"]) == (0, True, "steno.repeat/1")
    assert figures(found) == {"runs": 3, "succeeded": 3, "verdicts": {"success": 3}}
    assert found["statistics"]["cost_usd"] == {
        "known": 3,
        "minimum": 0.082064,
        "median": 0.082064,
        "mean": pytest.approx(0.082064),
        "maximum": 0.082064,
        "deviation": pytest.approx(0, abs=1e-9),
    }
    assert found["statistics"]["interval"] == pytest.approx([0.4385, 1.0], abs=1e-4)
    worktrees = [Path(run["worktree"]) for run in found["runs"]]
    assert [path.name for path in worktrees] == [f"repeat-{found['id']}-{n}" for n in (1, 2, 3)]
    assert all((path / "a.txt").exists() for path in worktrees)
    assert [line.split(" · ")[0] for line in err.splitlines()] == [
        f"{number}/3  success      $0.0821" for number in (1, 2, 3)
    ]
    listed = json.loads(place.steno("runs", "--tag", found["tag"], "--json").stdout)
    assert {row["run_id"] for row in listed["rows"]} == {run["run_id"] for run in found["runs"]}
    assert listed["rows"][0]["tags"] == {"repeat": found["id"], "team": "core"}


def test_the_summary(place: Place) -> None:
    place.plan({"recording": str(EDIT)}, {"recording": str(DENIED)}, {"recording": str(EDIT)})
    done = place.steno("repeat", "3", "--quiet", "--", "--attempts", "1", "x", COLUMNS="80")
    assert (done.returncode, done.stderr) == (1, b"")
    head, *lines = done.stdout.decode().splitlines()
    assert head.endswith(" · 3 runs · claude · claude-opus-5-5")
    assert lines[:15] == [
        "",
        "success    █████████████░░░░░░░ 67 % · 2 of 3 · 95 % confidence 21 to 94 %",
        "verdicts   2 success · 1 permission",
        "failed     run 2  permission: 2 calls denied (Write, Bash)",
        "",
        "            median      min      max  spread  min to max",
        "cost       $0.0821  $0.0221  $0.0821    56 %  ▅▁▁▁▁▁▁▁▁▁▁█",
        "tokens        148k    42.2k     148k    54 %  ▅▁▁▁▁▁▁▁▁▁▁█",
        "turns           14        3       14    61 %  ▅▁▁▁▁▁▁▁▁▁▁█",
        "duration    448 ms   146 ms   448 ms    50 %  ▅▁▁▁▁▁▁▁▁▁▁█",
        "",
        "✗ broken rules",
        "    across.min_success  success rate 67% (2 of 3, 95 % interval 21% to 94%), at",
        "                        least 100% wanted",
        "",
    ]
    assert lines[15].startswith("runs       steno runs --tag repeat=")
    assert lines[16].startswith("worktrees  ")


@pytest.mark.parametrize(("rule", "code"), [("min_success=0.6", 0), ("min_success=0.7", 1)])
def test_rules_over_all_runs(place: Place, rule: str, code: int) -> None:
    place.plan({"recording": str(EDIT)}, {"recording": str(DENIED)}, {"recording": str(EDIT)})
    found = repeat(place, "3", "--json", "--rule", rule, "--", "--attempts", "1", "x")
    assert found[0] == code
    assert [finding["rule"] for finding in found[1]["across"]] == ["across.min_success"] * code


def test_a_broken_rule_makes_a_run_fail(place: Place) -> None:
    (place.work / "ci.toml").write_text('allow_files = ["src/"]\n[across]\nmin_success = 0.5\n')
    code, found, _ = repeat(place, "2", "--json", "--policy", "ci.toml", "--", *REPLAY)
    assert (code, figures(found)["succeeded"]) == (1, 0)
    assert [run["findings"][0]["message"] for run in found["runs"]] == ["changed: nb.ipynb"] * 2


def test_a_rule_stops_each_run(place: Place) -> None:
    """A forbidden command: the agent would sleep for an hour."""
    lines = stream(init(), assistant(call("toolu_1", "Bash", command="git push")))
    place.plan({"out": lines.decode(), "sleep": 3600})
    words = ("2", "--jobs", "2", "--json", "--rule", "forbid_commands=git push", "--", "x")
    code, found, _ = repeat(place, *words)
    assert (code, figures(found)["verdicts"]) == (1, {"policy": 2})


def test_baselines(place: Place) -> None:
    saved = place.steno("repeat", "2", "--save-baseline", "main", "--", *REPLAY)
    assert saved.returncode == 0
    assert b"baseline of 2 runs saved: " in saved.stderr
    code, found, _ = repeat(place, "2", "--json", "--baseline", "main", "--", *REPLAY)
    assert (code, found["baseline"]["success_rate"], found["across"]) == (0, 1.0, [])
    place.plan({"recording": str(DENIED)})
    words = ("2", "--baseline", "main", "--", "--attempts", "1", "x")
    code, found, _ = repeat(place, "2", "--json", *words[1:])
    assert (code, found["across"][0]["message"]) == (1, "success rate 0%, baseline 100%")
    page = place.steno("repeat", *words, COLUMNS="100").stdout.decode()
    assert "turns            3        3        3     0 %        14   -79 %" in page
    assert "baseline   main: 2 runs, success 100 %" in page


def test_runs_at_the_same_time(place: Place) -> None:
    """Each agent waits for the other: one after the other, both would fail."""
    meet = (
        "import pathlib, sys, time\n"
        f"folder = pathlib.Path({str(place.folder / 'met')!r})\n"
        "folder.mkdir(exist_ok=True)\n"
        "(folder / pathlib.Path.cwd().name).touch()\n"
        f"end = time.monotonic() + {LONG}\n"
        "while len(list(folder.iterdir())) < 2 and time.monotonic() < end: time.sleep(0.02)\n"
        "sys.exit(len(list(folder.iterdir())) < 2)\n"
    )
    (place.folder / "meet.py").write_text(meet)
    (place.folder / "done").write_text(done_well())
    place.program.write_text(
        f'#!/bin/sh\n"{sys.executable}" "{place.folder}/meet.py" && cat "{place.folder}/done"\n'
    )
    code, found, _ = repeat(place, "2", "--jobs", "2", "--json", "--", "--attempts", "1", "x")
    assert (code, figures(found)["succeeded"]) == (0, 2)


def test_an_interrupt_summarises_what_finished(place: Place) -> None:
    working = stream(init(), assistant(text("I begin."))).decode()
    place.plan({"out": done_well()}, {"out": done_well()}, {"out": working, "sleep": 600})
    active = place.start("repeat", "9", "--json", "--save-baseline", "part", "--", "x")
    end = time.monotonic() + LONG
    while len(place.calls) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    active.send_signal(signal.SIGINT)
    out, err = active.communicate(timeout=LONG)
    found = json.loads(out)
    assert (active.returncode, figures(found)["runs"], found["requested"]) == (130, 2, 9)
    assert [(run["verdict"], run["counted"]) for run in found["runs"]] == [
        ("success", True),
        ("success", True),
        ("interrupted", False),
    ]
    assert "3/9  interrupted  $0.009037 · " in err.decode()
    assert not (place.data / "baselines").exists()
    left = subprocess.run(["pgrep", "-f", str(place.folder)], capture_output=True, check=False)
    assert left.stdout == b""


def test_a_second_interrupt_kills(place: Place) -> None:
    """Both agents ignore signals."""
    working = stream(init(), assistant(text("I begin."))).decode()
    place.plan({"out": working, "sleep": 600, "deaf": True})
    active = place.start("repeat", "9", "--jobs", "2", "--json", "--", "x")
    end = time.monotonic() + LONG
    while len(place.tapes) < 2 or any(b"I begin." not in path.read_bytes() for path in place.tapes):
        assert time.monotonic() < end
        time.sleep(0.02)
    active.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals at once would be one
    active.send_signal(signal.SIGINT)
    out, _ = active.communicate(timeout=LONG)
    assert (active.returncode, json.loads(out)["statistics"]["runs"]) == (130, 0)
    left = subprocess.run(["pgrep", "-f", str(place.folder)], capture_output=True, check=False)
    assert left.stdout == b""


def test_worktrees_are_removed_on_request(place: Place) -> None:
    words = ("2", "--json", "--remove-worktrees", "--", *REPLAY)
    assert [run["worktree"] for run in repeat(place, *words)[1]["runs"]] == [None, None]
    assert len(git(place, "worktree", "list").splitlines()) == 1
    assert git(place, "branch", "--list", "steno/*") == ""
    assert list(place.work.with_name("work-worktrees").iterdir()) == []


def test_without_git(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.steno("repeat", "2", "--", "x")
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"steno: --worktree: {place.work}: not a git repository, or not yours; to run in the "
        "folder itself: --in-place\n",
    )
    code, found, _ = repeat(place, "2", "--in-place", "--json", "--", "x")
    assert (code, found["runs"][1]["worktree"]) == (0, None)
    assert [call["cwd"] for call in place.calls] == [str(place.work)] * 2


def test_an_agent_that_is_not_installed(place: Place) -> None:
    done: Done = place.steno("repeat", "5", "--", "--agent", "codex", "x", PATH="/usr/bin")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (127, b"", 1)
    assert b"codex not found" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["3", "x"], "unexpected argument 'x'"),
        (["3"], "expected the options and the prompt of steno run after --"),
        (["0", "--", "x"], "N: expected a number of runs from 1 to 10,000, found '0'"),
        (["3", "--job", "2", "--", "x"], "unknown option --job; did you mean --jobs?"),
        (["3", "--", "--json", "x"], "--json and --raw: put --json before --"),
        (["3", "--", "--policy", "p", "x"], "--policy: put it before --"),
        (["3", "--", "--resume", "1234", "x"], "--resume: each run starts a new session"),
        (["3", "--", "--worktree", "x"], "--worktree: each run has its own"),
        (["3", "--rule", "min_succes=1", "--", "x"], "did you mean min_success?"),
        (["3", "--baseline", "none", "--", "x"], "no baseline 'none'"),
    ],
)
def test_wrong_use(place: Place, words: list[str], message: str) -> None:
    done = place.steno("repeat", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, b"", 1)
    assert message in done.stderr.decode()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([2, 2], ""),
        ([0, 1, 1, 1, 1, 1, 1, 1, 4], "▂█▁▂"),
        ([0, 3], "█▁▁█"),
    ],
)
def test_histogram(values: list[float], expected: str) -> None:
    assert histogram(values, 4) == expected
