"""steno as a real process with its own data directory, isolated from the user's."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]


class Ended(Struct, frozen=True):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def environment(data: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a steno with this data directory, and a home below it."""
    inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    own = {
        "HOME": str(data / "home"),
        "XDG_DATA_HOME": str(data),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "STENO_SYNC_TOKEN": "",
    }
    return {**inherited, **own, "PYTHONPATH": str(ROOT / "src"), **(more or {})}


def argv(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "steno", *map(str, words)]


def steno(
    data: Path, *words: str | Path, cwd: Path = ROOT, timeout: float = 120, **more: str
) -> Ended:
    """Run a command of steno to its end."""
    done = subprocess.run(
        argv(*words),
        capture_output=True,
        cwd=cwd,
        env=environment(data, more),
        timeout=timeout,
        check=False,
    )
    return Ended(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )
