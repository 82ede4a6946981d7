"""`steno run --policy` with the real Claude Code on a scripted model. Needs `make cli`."""

from pathlib import Path

import pytest

from tests.support.all_agents import Place, RunResult
from tests.support.modelserver import Hang, Step, call, say

VERSION = "claude 2.1.325"
FOREVER = "tail -f /dev/null"  # Claude Code itself refuses a long `sleep`, at once
STOPPED = Hang()  # no answer: only a stop ends the run


def run(tmp_path: Path, policy: str, *commands: str, end: Step = STOPPED) -> tuple[RunResult, int]:
    """The result of a run with these commands, one per request, and the number of requests."""
    place = Place(VERSION, tmp_path)
    (tmp_path / "policy.toml").write_text(policy)
    steps = [call("Bash", command=command, description="a step") for command in commands]
    words = ("--policy", str(tmp_path / "policy.toml"))
    with place.start(*steps, end, words=words) as active:
        result = active.finish()  # no process is left
        return result, len(active.server.requests)


def test_a_forbidden_command_is_stopped_before_the_next_request(tmp_path: Path) -> None:
    """A command that runs: of one that ends at once, the agent may report the result first."""
    result, requests = run(
        tmp_path, 'forbid_commands = ["^tail"]\n', "echo fine", FOREVER, "touch never"
    )
    assert (result.code, result.report["verdict"], requests) == (3, "policy", 2)
    assert result.report["error"] == f"stopped by a policy: forbid_commands: ran: {FOREVER}"
    assert result.report["evidence"] != []
    assert not (tmp_path / "work/never").exists()


def test_a_file_outside_src_ends_the_run(tmp_path: Path) -> None:
    place = Place(VERSION, tmp_path)
    (tmp_path / "policy.toml").write_text('allow_files = ["src/"]\n')
    steps = [
        call("Write", file_path=str(place.work / name), content="x\n")
        for name in ("src/a.py", "setup.py")
    ]
    result = place.run(*steps, STOPPED, words=("--policy", str(tmp_path / "policy.toml")))
    assert (result.code, result.report["verdict"]) == (3, "policy")
    assert result.report["error"] == "stopped by a policy: allow_files: changed: setup.py"
    assert [file["path"] for file in result.report["files"]] == ["src/a.py", "setup.py"]


@pytest.mark.parametrize("times", [4, 5])
def test_a_loop_of_failing_calls_ends_the_run(tmp_path: Path, times: int) -> None:
    """At most four identical failures are allowed: the fifth ends the run."""
    commands = ["false"] * times
    end = STOPPED if times > 4 else say("Done.")
    result, requests = run(tmp_path, "max_repeated_failures = 4\n", *commands, end=end)
    if times == 4:
        assert (result.code, result.report["verdict"], requests) == (0, "success", 5)
    else:
        assert (result.code, result.report["verdict"]) == (3, "policy")
        assert "the same call failed 5 times in a row, limit 4: false" in result.report["error"]
