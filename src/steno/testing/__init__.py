"""The contract that every agent must keep, as checks: an agent and its recordings in, what does not hold out. Public.

    import pytest
    from steno import testing
    from steno_parrot import AGENT

    @pytest.mark.parametrize("case", testing.cases("recordings"), ids=str)
    def test_a_recording(case):
        testing.check_case(AGENT, case)

    def test_how_it_is_started():
        testing.check_start(AGENT)

`check(AGENT, "recordings")` is all of it in one call. A case is a folder with `stdout`, exactly as the program printed it;
beside it, where they are known, `stderr`, `exit_code`, `sessions` (what the agent kept of it), and `expected.json`: the
report that a person has checked. It starts no program and needs no test runner; what does not hold is an AssertionError
that says which rule, in which case, and what was found instead.
"""

import os
from pathlib import Path

from msgspec import Struct

from ..agents.base import Agent
from ..errors import SourceError
from ..report import Report
from .checks import CHECKS, Check, read_report, start_violations

__all__ = ["Case", "cases", "check", "check_case", "check_start", "report", "violations"]


class Case(Struct, frozen=True):
    """One recording: the folder that holds it, and its name among the others."""

    folder: Path
    name: str

    def __str__(self) -> str:
        return self.name


def cases(folder: str | os.PathLike[str]) -> list[Case]:
    """Every recording below a folder, by name. SourceError if there is none: a suite without cases holds nothing."""
    root = Path(folder)
    found = [
        Case(path.parent, str(path.parent.relative_to(root)))
        for path in sorted(root.rglob("stdout"))
        if path.is_file()
    ]
    if not found:
        raise SourceError(
            f"{root}: no recording below this folder; expected folders that hold `stdout`"
        )
    return found


def violations(agent: Agent, case: Case) -> list[str]:
    """What one recording shows that the contract does not allow, a sentence each; none: all of it holds."""
    return [
        f"{case.name}: {what}" for check in CHECKS for what in _run_check(check, agent, case.folder)
    ]


def _run_check(check: Check, agent: Agent, folder: Path) -> list[str]:
    """What one check finds; that it cannot even be made is a finding too."""
    try:
        return list(check(agent, folder))
    except Exception as problem:  # whatever the agent's code does
        return [f"reading it ({check.__name__}) raised {type(problem).__name__}: {problem}"]


def check_case(agent: Agent, case: Case) -> None:
    """AssertionError if one recording shows that the contract does not hold."""
    _raise_violations(agent, violations(agent, case))


def check_start(agent: Agent, sessions: tuple[str, ...] = ()) -> None:
    """AssertionError if the command lines that it builds break the contract. `sessions` are ids that it would return."""
    _raise_violations(agent, start_violations(agent, sessions))


def check(agent: Agent, folder: str | os.PathLike[str]) -> int:
    """All checks on all recordings below a folder, and on how it is started. Returns how many recordings there were."""
    found = cases(folder)
    sessions = {report(agent, case).session_id for case in found}
    told = [what for case in found for what in violations(agent, case)]
    _raise_violations(
        agent,
        [
            *told,
            *start_violations(
                agent, tuple(sorted(session for session in sessions if session is not None))
            ),
        ],
    )
    return len(found)


def report(agent: Agent, case: Case) -> Report:
    """The report of a case, read as this agent's. Its `to_json` is what stands in `expected.json`, once it was checked."""
    return read_report(agent, case.folder)


def _raise_violations(agent: Agent, found: list[str]) -> None:
    if found:
        raise AssertionError(
            "\n".join(
                [
                    f"agent {agent.name} does not keep the contract:",
                    *(f"  {what}" for what in found),
                ]
            )
        )
