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

from ..agents import AGENTS, Abilities, Agent
from ..agents.asking import OPTIONS, how
from ..process.once import Once
from ..supervise.version import version_of

PATIENCE = 10.0  # seconds that a program gets to tell its version: those that are known need up to 2
_NUMBER = re.compile(r"\d+(?:\.\d+)+")


class Folder(Struct, frozen=True):
    """A folder in which an agent keeps transcripts, and whether it is there and may be read."""

    path: str
    exists: bool
    readable: bool


class Installed(Struct, frozen=True):
    """One agent on this machine. Without `path` it is not installed; `known` says how its version stands to those tested.

    `options` says of each option of a run who deals with it: `agent`, `steno`, or `no`, which is refused.
    """

    agent: str
    path: str | None
    version: str | None
    known: str
    tested: tuple[str, ...]
    abilities: Abilities
    cannot: tuple[str, ...]
    backends: tuple[str, ...]
    options: dict[str, str]
    sign_in: tuple[str, ...]
    folders: tuple[Folder, ...]
    install: str


def installed(agent: Agent, environment: Mapping[str, str], program: str | None = None) -> Installed:
    """How one agent stands. `program` is its name or path where that is not simply its name."""
    home = environment.get("HOME") or str(Path.home())
    path = shutil.which(program or agent.name, path=environment.get("PATH"))
    version = None if path is None else version_of(path, package=agent.package) or _asked(path)
    return Installed(
        agent=agent.name,
        path=path,
        version=version,
        known=standing(version, agent.tested) if path is not None else "absent",
        tested=agent.tested,
        abilities=agent.abilities,
        cannot=agent.cannot,
        backends=agent.backends,
        options={option: how(agent, option) for option in OPTIONS},
        sign_in=_sign_in(agent, environment, home),
        folders=tuple(_folder(folder) for folder in agent.folders(environment, home)),
        install=agent.install,
    )


def everyone(environment: Mapping[str, str]) -> list[Installed]:
    """Every agent that this version knows."""
    return [installed(agent, environment) for agent in AGENTS.values()]


def _asked(path: str) -> str | None:
    """What the program itself says of its version."""
    code, out, _ = Once((path, "--version"), os.sep, {"LC_ALL": "C"}, PATIENCE).run()
    found = _NUMBER.search(out.decode("utf-8", "replace")) if code == 0 else None
    return found[0] if found is not None else None


def standing(version: str | None, tested: tuple[str, ...]) -> str:
    """tested, between (two that were), newer, older, or unknown."""
    if version is None or not tested:
        return "unknown"
    if version in tested:
        return "tested"
    own, known = _parts(version), sorted(_parts(one) for one in tested)
    if own > known[-1]:
        return "newer"
    return "older" if own < known[0] else "between"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _sign_in(agent: Agent, environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """By which names it can be signed in: variables that are set, files of its own that are there."""
    keys = [name for name in agent.surroundings.keys if environment.get(name)]
    files = [f"~/{name}" for name in agent.credentials if os.path.exists(os.path.join(home, name))]  # noqa: PTH110, PTH118
    return (*keys, *files)


def _folder(path: str) -> Folder:
    return Folder(path, os.path.isdir(path), os.access(path, os.R_OK | os.X_OK))  # noqa: PTH112
