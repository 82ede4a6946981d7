"""`steno run --policy` with the real Claude Code on a scripted model. Needs `make cli`."""

from pathlib import Path

import pytest

from tests.support.all_agents import Place, RunResult
from tests.support.modelserver import call, say

VERSION = "claude 2.1.325"


def run(tmp_path: Path, policy: str, *commands: str) -> tuple[RunResult, int]:
    """The result of a run with these commands, one per request, and the number of requests."""
    place = Place(VERSION, tmp_path)
    (tmp_path / "policy.toml").write_text(policy)
    steps = [call("Bash", command=command, description="a step") for command in commands]
    words = ("--policy", str(tmp_path / "policy.toml"))
    with place.start(*steps, say("Done."), words=words) as active:
        result = active.finish()  # no process is left
        return result, len(active.server.requests)


def test_a_forbidden_command_is_stopped_before_the_next_request(tmp_path: Path) -> None:
    result, requests = run(
        tmp_path, 'forbid_commands = ["sleep"]\n', "echo fine", "sleep 60", "echo never"
    )
    assert (result.code, result.report["verdict"], requests) == (3, "policy", 2)
    assert result.report["error"] == "stopped by a policy: forbid_commands: ran: sleep 60"
    assert result.report["evidence"] != []


@pytest.mark.parametrize("times", [4, 5])
def test_a_loop_of_failing_calls_ends_the_run(tmp_path: Path, times: int) -> None:
    """At most four identical failures are allowed: the fifth ends the run."""
    commands = ["false"] * times
    result, requests = run(tmp_path, "max_repeated_failures = 4\n", *commands)
    if times == 4:
        assert (result.code, result.report["verdict"], requests) == (0, "success", 5)
    else:
        assert (result.code, result.report["verdict"]) == (3, "policy")
        assert "the same call failed 5 times in a row, limit 4: false" in result.report["error"]
