"""The real Claude Code, in the versions that the tests run, each in a place of its own. `make cli` installs them.

Nothing of the machine's own settings reaches it: no HOME, no key, no variable of ours.
"""

import os
from pathlib import Path

import pytest

VERSIONS = ("2.1.197", "2.1.325")
ROOT = Path(__file__).parents[2]


def program(version: str) -> Path:
    """Where a version is installed, or should be."""
    return Path(os.environ.get("STENO_TEST_CLI") or ROOT / ".cli", f"claude-{version}", "node_modules", ".bin", "claude")


def installed(version: str) -> str:
    """The program; without it the test is skipped, or fails where STENO_REQUIRE names cli."""
    path = program(version)
    if not path.exists():
        reason = f"Claude Code {version} is not installed below {path.parents[3]}: make cli"
        if "cli" in os.environ.get("STENO_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return str(path)


def clean_env(home: Path, url: str) -> dict[str, str]:
    """An environment with a HOME of its own, the scripted model, and a key that opens nothing."""
    return {
        "HOME": str(home),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-not-a-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",  # containers run tests as root, where it asks for this before it lets tools run unasked
    }
