"""Contract checks for agents: an agent and its recordings in, violations out."""

import os
from pathlib import Path

from msgspec import Struct

from ..agents.base import Agent
from ..errors import SourceError
from ..report import Report
from .checks import CHECKS, Check, read_report, start_violations


class Case(Struct, frozen=True):
    """One recording: its folder, and its name among the others."""

    folder: Path
    name: str

    def __str__(self) -> str:
        return self.name


def cases(folder: str | os.PathLike[str]) -> list[Case]:
    """Return all recordings below a folder, by name; SourceError if there are none."""
    root = Path(folder)
    recordings = [
        Case(path.parent, str(path.parent.relative_to(root)))
        for path in sorted(root.rglob("stdout"))
        if path.is_file()
    ]
    if not recordings:
        raise SourceError(
            f"{root}: no recordings below this folder; expected folders that contain `stdout`"
        )
    return recordings


def violations(agent: Agent, case: Case) -> list[str]:
    """Return the violations of the contract that one recording shows, one line each."""
    return [
        f"{case.name}: {violation}"
        for check in CHECKS
        for violation in _run_check(check, agent, case.folder)
    ]


def _run_check(check: Check, agent: Agent, folder: Path) -> list[str]:
    try:
        return list(check(agent, folder))
    except Exception as error:  # the agent's code may raise anything
        return [f"{check.__name__} raised {type(error).__name__}: {error}"]


def check_case(agent: Agent, case: Case) -> None:
    """Raise AssertionError if one recording violates the contract."""
    _raise_violations(agent, violations(agent, case))


def check_start(agent: Agent, sessions: tuple[str, ...] = ()) -> None:
    """Raise AssertionError if its commands violate the contract. `sessions` are ids it returned."""
    _raise_violations(agent, start_violations(agent, sessions))


def check(agent: Agent, folder: str | os.PathLike[str]) -> int:
    """Run all checks on all recordings below a folder; return the number of recordings."""
    recordings = cases(folder)
    sessions = {report(agent, case).session_id for case in recordings}
    session_ids = tuple(sorted(session for session in sessions if session is not None))
    messages = [message for case in recordings for message in violations(agent, case)]
    _raise_violations(agent, messages + start_violations(agent, session_ids))
    return len(recordings)


def report(agent: Agent, case: Case) -> Report:
    """Return the report of a case; once checked, its `to_json` is the `expected.json`."""
    return read_report(agent, case.folder)


def _raise_violations(agent: Agent, messages: list[str]) -> None:
    if messages:
        lines = [f"agent {agent.name} violates the contract:"]
        raise AssertionError("\n".join(lines + [f"  {message}" for message in messages]))
