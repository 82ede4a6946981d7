"""`steno repeat` with the real Claude Code on a scripted model. Needs `make cli`."""

import json
import subprocess
from pathlib import Path

from tests.support.all_agents import LONG, Place
from tests.support.modelserver import call, say

VERSION = "claude 2.1.325"


def test_each_run_works_in_its_own_worktree(tmp_path: Path) -> None:
    """Two runs, one after the other: the first writes a file, the second runs a command."""
    place = Place(VERSION, tmp_path)
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=place.work, check=True)
    steps = [
        call("Bash", command="echo one > made.txt", description="write"),
        say("Written."),
        call("Bash", command="ls made.txt", description="read"),
        say("It is not there."),
    ]
    command = ("repeat", "2", "--json", "--rule", "max_tool_errors=0", "--")
    with place.start(*steps, command=command) as active:
        out, err = active.process.communicate(timeout=LONG)
        assert active.running_commands() == []
        assert len(active.server.requests) == 4
    found = json.loads(out)
    assert (active.process.returncode, found["statistics"]["verdicts"]) == (1, {"success": 2})
    assert [run["ok"] for run in found["runs"]] == [True, False], err
    assert found["runs"][1]["findings"][0]["message"] == "failed calls 1, limit 0"
    assert [run["turns"] for run in found["runs"]] == [2, 2]
    first, second = (Path(run["worktree"]) for run in found["runs"])
    assert [(folder / "made.txt").exists() for folder in (first, second)] == [True, False]
