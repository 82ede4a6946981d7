"""Which agents are there, of which version, and how they are signed in: as a label, never as a secret.

It looks at names of files and variables, and at the package that a program lies in. A program is started, to ask for its
version, only where its files do not tell. It never opens a file that can hold a key.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..agents import AGENTS, Agent, Capabilities
from ..agents.asking import OPTION_FIELDS, option_support
from ..process.once import RunOnce
from ..supervise.version import version_of

VERSION_TIMEOUT_SECONDS = 10.0  # seconds that a program gets to tell its version: those that are known need up to 2
_VERSION_PATTERN = re.compile(r"\d+(?:\.\d+)+")


class TranscriptFolder(Struct, frozen=True):
    """A folder in which an agent keeps transcripts, and whether it is there and may be read."""

    path: str
    exists: bool
    readable: bool


class AgentInstallation(Struct, frozen=True):
    """One agent on this machine. Without `path` it is not installed; `known` says how its version stands to those tested.

    `options` says of each option of a run who deals with it: `agent`, `steno`, or `no`, which is refused.
    """

    agent: str
    path: str | None
    version: str | None
    known: str
    tested: tuple[str, ...]
    abilities: Capabilities
    cannot: tuple[str, ...]
    backends: tuple[str, ...]
    options: dict[str, str]
    sign_in: tuple[str, ...]
    folders: tuple[TranscriptFolder, ...]
    install: str


def inspect_agent(agent: Agent, environment: Mapping[str, str], program: str | None = None) -> AgentInstallation:
    """How one agent stands. `program` is its name or path where that is not simply its name."""
    home = environment.get("HOME") or str(Path.home())
    path = shutil.which(program or agent.name, path=environment.get("PATH"))
    version = None if path is None else version_of(path, package=agent.npm_package) or _version_from_program(path)
    return AgentInstallation(
        agent=agent.name,
        path=path,
        version=version,
        known=version_status(version, agent.tested_versions) if path is not None else "absent",
        tested=agent.tested_versions,
        abilities=agent.capabilities,
        cannot=agent.unsupported_options,
        backends=agent.backends,
        options={option: option_support(agent, option) for option in OPTION_FIELDS},
        sign_in=_sign_in_sources(agent, environment, home),
        folders=tuple(_inspect_folder(folder) for folder in agent.transcript_folders(environment, home)),
        install=agent.install_command,
    )


def inspect_all_agents(environment: Mapping[str, str]) -> list[AgentInstallation]:
    """Every agent that this version knows."""
    return [inspect_agent(agent, environment) for agent in AGENTS.values()]


def _version_from_program(path: str) -> str | None:
    """What the program itself says of its version."""
    code, out, _ = RunOnce((path, "--version"), os.sep, {"LC_ALL": "C"}, VERSION_TIMEOUT_SECONDS).run()
    found = _VERSION_PATTERN.search(out.decode("utf-8", "replace")) if code == 0 else None
    return found[0] if found is not None else None


def version_status(version: str | None, tested: tuple[str, ...]) -> str:
    """tested, between (two that were), newer, older, or unknown."""
    if version is None or not tested:
        return "unknown"
    if version in tested:
        return "tested"
    own, known = _version_numbers(version), sorted(_version_numbers(one) for one in tested)
    if own > known[-1]:
        return "newer"
    return "older" if own < known[0] else "between"


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _sign_in_sources(agent: Agent, environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """By which names it can be signed in: variables that are set, files of its own that are there."""
    keys = [name for name in agent.env_policy.api_key_names if environment.get(name)]
    files = [f"~/{name}" for name in agent.credential_files if os.path.exists(os.path.join(home, name))]  # noqa: PTH110, PTH118
    return (*keys, *files)


def _inspect_folder(path: str) -> TranscriptFolder:
    return TranscriptFolder(path, os.path.isdir(path), os.access(path, os.R_OK | os.X_OK))  # noqa: PTH112
