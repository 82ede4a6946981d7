"""The real programs that the tests run, each version in a folder of its own. `make cli` installs them."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(agent: str, version: str) -> Path:
    """Where a version is installed, or should be."""
    return Path(
        os.environ.get("STENO_TEST_CLI") or ROOT / ".cli",
        f"{agent}-{version}",
        "node_modules",
        ".bin",
        agent,
    )


def installed(agent: str, version: str) -> str:
    """The program; without it the test is skipped, or fails where STENO_REQUIRE names cli."""
    path = program(agent, version)
    if not path.exists():
        reason = f"{agent} {version} is not installed in {path.parents[2]}: make cli"
        if "cli" in os.environ.get("STENO_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return str(path)
