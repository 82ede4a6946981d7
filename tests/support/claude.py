"""The real Claude Code, in the tested versions, isolated from the settings of this machine.

Installed by `make cli`.
"""

import os
from pathlib import Path

from .agent_programs import installed as installed_program

VERSIONS = ("2.1.197", "2.1.325")


def installed(version: str) -> str:
    """The path of the program, or skip the test."""
    return installed_program("claude", version)


def clean_env(home: Path, url: str) -> dict[str, str]:
    """An environment with its own HOME, the scripted model, and an invalid key."""
    return {
        "HOME": str(home),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-not-a-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",  # required to bypass permissions as root, as in containers
    }
