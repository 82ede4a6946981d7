"""Installed agents: programs, versions, credentials, transcript folders.

Versions are read from file names and package files if possible: starting a program takes a tenth
of a second.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from ..agents import AGENTS, Agent, Capabilities
from ..agents.base import OPTION_FIELDS, option_support
from ..process.run_once import RunOnce

VERSION_TIMEOUT_SECONDS = 10.0  # for `--version`; known agents need up to 2 s
_VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+")
_PRINTED_VERSION = re.compile(r"\d+(?:\.\d+)+")


class _PackageJson(Struct):
    name: str = ""
    version: str = ""


def find_program(program: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of a program, searched in the PATH of `environ`; None if not found."""
    name = Path(program).expanduser() if os.sep in program else program
    path = shutil.which(name, path=environ.get("PATH", os.defpath))
    return None if path is None else str(Path(path).absolute())


def version_of(program: str, npm_package: str, search_path: str | None = None) -> str | None:
    """The version by file name (own installers) or by package.json (npm); None if unknown."""
    path = shutil.which(program, path=search_path)
    if path is None:
        return None
    file = Path(os.path.realpath(path))
    if _VERSION_PATTERN.fullmatch(file.name):
        return file.name
    for folder in file.parents[:3]:
        version = _version_from_package_json(folder / "package.json", npm_package)
        if version:
            return version
    return None


def _version_from_package_json(path: Path, npm_package: str) -> str | None:
    try:
        package = msgspec.json.decode(path.read_bytes(), type=_PackageJson)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return package.version if npm_package and package.name == npm_package else None


class TranscriptFolder(Struct, frozen=True):
    """A folder with an agent's transcripts."""

    path: str
    exists: bool
    readable: bool


class AgentInstallation(Struct, frozen=True):
    """One agent on this machine. `path` is None if it is not installed.

    `known` compares its version with the tested ones. `options` says who implements each option of
    a run: `agent`, `steno`, or `no` (refused).
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


def inspect_agent(
    agent: Agent, environment: Mapping[str, str], program: str | None = None
) -> AgentInstallation:
    """Inspect one agent. `program` is its name or path, if it differs from the agent's name."""
    home = environment.get("HOME") or str(Path.home())
    path = shutil.which(program or agent.name, path=environment.get("PATH"))
    version = None
    known = "absent"
    if path is not None:
        package = agent.installation.npm_package
        version = version_of(path, package) or _version_from_program(path)
        known = version_status(version, agent.installation.tested_versions)
    return AgentInstallation(
        agent=agent.name,
        path=path,
        version=version,
        known=known,
        tested=agent.installation.tested_versions,
        abilities=agent.capabilities,
        cannot=agent.launch.unsupported_options,
        backends=agent.launch.backends,
        options={option: option_support(agent, option) for option in OPTION_FIELDS},
        sign_in=_sign_in_sources(agent, environment, home),
        folders=tuple(
            _inspect_folder(folder) for folder in agent.transcripts.folders(environment, home)
        ),
        install=agent.installation.command,
    )


def inspect_all_agents(environment: Mapping[str, str]) -> list[AgentInstallation]:
    """Inspect every known agent."""
    return [inspect_agent(agent, environment) for agent in AGENTS.values()]


def _version_from_program(path: str) -> str | None:
    command = RunOnce((path, "--version"), os.sep, {"LC_ALL": "C"}, VERSION_TIMEOUT_SECONDS)
    code, out, _ = command.run()
    match = _PRINTED_VERSION.search(out.decode("utf-8", "replace")) if code == 0 else None
    return match[0] if match is not None else None


def version_status(version: str | None, tested: tuple[str, ...]) -> str:
    """tested, between (two tested versions), newer, older, or unknown."""
    if version is None or not tested:
        return "unknown"
    if version in tested:
        return "tested"
    numbers = _version_numbers(version)
    tested_numbers = sorted(_version_numbers(other) for other in tested)
    if numbers > tested_numbers[-1]:
        return "newer"
    return "older" if numbers < tested_numbers[0] else "between"


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _sign_in_sources(agent: Agent, environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """API key variables that are set, and credential files that exist."""
    keys = [name for name in agent.launch.env_policy.api_key_names if environment.get(name)]
    files = [
        f"~/{name}" for name in agent.installation.credential_files if (Path(home) / name).exists()
    ]
    return (*keys, *files)


def _inspect_folder(path: str) -> TranscriptFolder:
    return TranscriptFolder(path, Path(path).is_dir(), os.access(path, os.R_OK | os.X_OK))
