"""The real Claude Code, in the versions that the tests run, each in a place of its own. `make cli` installs them.

Nothing of the machine's own settings reaches it: no HOME, no key, no variable of ours.
"""

import os
from pathlib import Path

from .installed import installed as installed_program

VERSIONS = ("2.1.197", "2.1.325")


def installed(version: str) -> str:
    """The program; see `support.installed`."""
    return installed_program("claude", version)


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
