"""A real terminal for tests of full-screen programs: keys go in, screens come out (tmux)."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.05


def require_tmux() -> None:
    """Skip the test without tmux; fail if STENO_REQUIRE contains tmux."""
    if shutil.which("tmux") is None:
        if "tmux" in os.environ.get("STENO_REQUIRE", "").split(","):
            pytest.fail("tmux not found, and STENO_REQUIRE asks for it")
        pytest.skip("tmux not found")


class Terminal:
    """A program in a terminal of its own; a context manager."""

    def __init__(
        self,
        folder: Path,
        command: list[str],
        environ: dict[str, str],
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        self._socket = str(folder / "tmux")
        self._command = ["env", "-i", *(f"{name}={text}" for name, text in environ.items())]
        self._command += ["TERM=xterm-256color", "LANG=C.UTF-8", *command]
        self._size = ["-x", str(columns), "-y", str(rows)]
        self._folder = folder

    def __enter__(self) -> "Terminal":
        words = ["-f", os.devnull, "new-session", "-d", *self._size, "-c", str(self._folder)]
        # The terminal stays after the program, so that its last screen can be read.
        self._tmux(*words, f"{shlex.join(self._command)}; echo exit code $?; sleep 60")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Send keys by their tmux names, or text."""
        for key in keys:
            self._tmux("send-keys", key)

    def screen(self) -> list[str]:
        """The lines without trailing blanks and without empty lines at the end."""
        return self._tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def wait(self, condition: Callable[[str], bool] | str) -> list[str]:
        """The screen as soon as it contains a text or fulfils a condition."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            lines = self.screen()
            text = "\n".join(lines)
            if condition in text if isinstance(condition, str) else condition(text):
                return lines
            assert time.monotonic() < deadline, f"not seen: {condition!r} in\n{text}"
            time.sleep(POLL_SECONDS)
