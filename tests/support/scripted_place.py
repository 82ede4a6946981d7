"""A place for scripted runs: a home, a working directory, and a `claude` that follows a plan."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_lines import RECORDINGS, assistant, init, result, stream, text

Json = dict[str, Any]
NEWEST = RECORDINGS / "claude" / "2.1.325"
PLAYED = Path(__file__).parents[1] / "scripted_agents" / "plan_player.py"
DROPPED_PREFIXES = ("STENO_", "CLAUDE", "ANTHROPIC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "XDG_")
Done = subprocess.CompletedProcess[bytes]


def done_well(answer: str = "Done.") -> str:
    """The stream of a successful run."""
    return stream(init(), assistant(text(answer)), result(answer)).decode()


class Place:
    """The folders and the environment of scripted runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.data = self.home / "data" / "steno"
        for path in (self.home / "config" / "steno", self.work, folder / "bin"):
            path.mkdir(parents=True)
        self.program = folder / "bin" / "claude"
        self.program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{PLAYED}" "{folder / "plan"}" "$@"\n'
        )
        self.program.chmod(0o755)
        self.plan({"out": done_well()})
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(DROPPED_PREFIXES)
        }
        search = f"{folder / 'bin'}{os.pathsep}{inherited['PATH']}"
        own = {
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
        }
        self.environ: dict[str, str] = {
            **inherited,
            **own,
            "PATH": search,
            "TZ": "UTC",
            "PYTHONIOENCODING": "utf-8",
        }

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Move this process into the place, for tests of the library."""
        for name in set(os.environ) - set(self.environ):
            monkeypatch.delenv(name)
        for name, value in self.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.work)

    def plan(self, *steps: Json) -> None:
        """Set the agent's step for each start; the last one is repeated."""
        (self.folder / "plan").write_text(json.dumps(steps), "utf-8")

    @property
    def calls(self) -> list[Json]:
        """Every start of the agent: argv, prompt, cwd, env."""
        path = self.folder / "calls"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def tapes(self) -> list[Path]:
        """The recordings of all runs, oldest first."""
        return sorted(self.data.rglob("*.steno"), key=lambda path: path.stat().st_mtime_ns)

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "steno", *map(str, words)]

    def steno(
        self,
        *words: str | Path,
        stdin: bytes | None = None,
        cwd: Path | None = None,
        **environ: str,
    ) -> Done:
        """Run steno to its end."""
        stdin_args: Any = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(
            self.command(*words),
            cwd=cwd or self.work,
            env=self.environ | environ,
            capture_output=True,
            timeout=60,
            check=False,
            **stdin_args,
        )

    def start(self, *words: str | Path, **more: Any) -> "subprocess.Popen[bytes]":
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            self.command(*words), cwd=self.work, **{"env": self.environ, **pipes, **more}
        )
