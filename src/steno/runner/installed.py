"""Which version of an agent a program is, as far as files tell it: starting it only to ask would cost a tenth of a second."""

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

NPM_PACKAGES = (
    "@anthropic-ai/claude-code", "@openai/codex", "@github/copilot", "@google/gemini-cli", "opencode-ai", "@qwen-code/qwen-code",
)  # fmt: skip
_VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+")


class _PackageJson(msgspec.Struct):
    name: str = ""
    version: str = ""


def version_of(program: str, path: str | None = None, package: str = "") -> str | None:
    """By the name of the file (its own installer) or by the package that it lies in (npm); None: neither tells.

    `package` is that of an agent that is none of ours.
    """
    found = shutil.which(program, path=path)
    if found is None:
        return None
    file = Path(os.path.realpath(found))
    if _VERSION_PATTERN.fullmatch(file.name):
        return file.name
    known = (*NPM_PACKAGES, package) if package else NPM_PACKAGES
    return next(
        filter(
            None,
            (
                _version_from_package_json(folder / "package.json", known)
                for folder in file.parents[:3]
            ),
        ),
        None,
    )


def _version_from_package_json(path: Path, known: tuple[str, ...]) -> str | None:
    try:
        package = msgspec.json.decode(path.read_bytes(), type=_PackageJson)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return package.version if package.name in known else None


VERSION_TIMEOUT_SECONDS = (
    10.0  # seconds that a program gets to tell its version: those that are known need up to 2
)
_PRINTED_VERSION = re.compile(r"\d+(?:\.\d+)+")


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


def inspect_agent(
    agent: Agent, environment: Mapping[str, str], program: str | None = None
) -> AgentInstallation:
    """How one agent stands. `program` is its name or path where that is not simply its name."""
    home = environment.get("HOME") or str(Path.home())
    path = shutil.which(program or agent.name, path=environment.get("PATH"))
    version = (
        None
        if path is None
        else version_of(path, package=agent.installation.npm_package) or _version_from_program(path)
    )
    return AgentInstallation(
        agent=agent.name,
        path=path,
        version=version,
        known=version_status(version, agent.installation.tested_versions)
        if path is not None
        else "absent",
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
    """Every agent that this version knows."""
    return [inspect_agent(agent, environment) for agent in AGENTS.values()]


def _version_from_program(path: str) -> str | None:
    """What the program itself says of its version."""
    code, out, _ = RunOnce(
        (path, "--version"), os.sep, {"LC_ALL": "C"}, VERSION_TIMEOUT_SECONDS
    ).run()
    found = _PRINTED_VERSION.search(out.decode("utf-8", "replace")) if code == 0 else None
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
    keys = [name for name in agent.launch.env_policy.api_key_names if environment.get(name)]
    files = [
        f"~/{name}"
        for name in agent.installation.credential_files
        if os.path.exists(os.path.join(home, name))  # noqa: PTH110, PTH118
    ]
    return (*keys, *files)


def _inspect_folder(path: str) -> TranscriptFolder:
    return TranscriptFolder(path, os.path.isdir(path), os.access(path, os.R_OK | os.X_OK))  # noqa: PTH112
