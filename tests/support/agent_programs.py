"""The real agents that the tests run, each version in its own folder. Installed by `make cli`."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(agent: str, version: str) -> Path:
    """The path where a version is installed."""
    root = Path(os.environ.get("STENO_TEST_CLI") or ROOT / ".cli")
    return root / f"{agent}-{version}" / "node_modules" / ".bin" / agent


def installed(agent: str, version: str) -> str:
    """The path of the program. If missing, skip the test; fail if STENO_REQUIRE contains cli."""
    return str(require(program(agent, version), f"{agent} {version}"))


def require(path: Path, name: str) -> Path:
    """The path. If missing, skip the test; fail if STENO_REQUIRE contains cli."""
    if not path.exists():
        reason = f"{name} not installed ({path}); run: make cli"
        if "cli" in os.environ.get("STENO_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def schema_file(path: str) -> Path:
    """A schema in one of the npm packages that `make cli` installs for this."""
    root = Path(os.environ.get("STENO_TEST_CLI") or ROOT / ".cli")
    return require(root / "schemas" / "node_modules" / path, path)


def search_path(program_: str) -> str:
    """PATH with the folder of an installed program first: it may have its own Node."""
    return os.pathsep.join((str(Path(program_).parent), os.environ.get("PATH", os.defpath)))
