"""Run any of the real agents with `steno run`, each in an empty place, on a scripted model.

Claude Code, and others than the main version of Qwen Code, are named with their version:
"claude 2.1.325".
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from steno.process import process_tree, run_tag

from . import claude, completions, openai, program
from .agent_programs import search_path
from .modelserver import Call, ModelServer, Step

PROGRAMS = ("codex", "copilot", "gemini", "opencode", "qwen", "qwen 0.24.4")
# The modes in which nothing is asked; bypassPermissions for the other agents.
BYPASS_MODES = {"gemini": "yolo", "opencode": "yolo", "qwen": "yolo"}
LONG = 300.0  # seconds; for slow machines

Server = openai.ResponsesServer | ModelServer


def shell(agent: str, command: str) -> Call:
    """A call that runs a command."""
    if agent == "codex":
        return Call("exec_command", {"cmd": command})
    name = {"copilot": "bash", "opencode": "bash"}.get(agent, "run_shell_command")
    more = {"is_background": False} if agent == "qwen" else {}
    return Call(name, {"command": command, "description": "run it", **more})


def write(agent: str, path: Path, text: str) -> Call:
    """A call that creates a file with one line."""
    if agent == "codex":
        patch = f"*** Begin Patch\n*** Add File: {path.name}\n+{text}*** End Patch\n"
        return Call("apply_patch", {"patch": patch})
    if agent == "copilot":
        return Call("create", {"path": str(path), "file_text": text})
    if agent == "opencode":
        return Call("write", {"filePath": str(path), "content": text})
    return Call("write_file", {"file_path": str(path), "content": text})


class RunResult(Struct, frozen=True):
    """The result of `steno run --json`."""

    code: int
    report: dict[str, Any]
    err: str


class Place:
    """A home, a working directory and a data directory, all empty at first."""

    def __init__(
        self, name: str, folder: Path, shared: Path | None = None, program: str | None = None
    ) -> None:
        self.agent, _, self.version = name.partition(" ")
        self.is_claude = self.agent == "claude"
        self.data = (shared or folder) / "data"
        self.home = (shared or folder) / "home"
        self.work = folder / "work"
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True)
        if program is not None:
            self.path = program
        elif self.is_claude:
            self.path = claude.installed(self.version)
        elif self.agent in openai.VERSIONS:
            self.path = openai.installed(self.agent)
        else:
            self.path = completions.installed(self.agent, self.version)

    def serve(self, *steps: Step) -> Server:
        """The scripted model for this agent."""
        if self.is_claude:
            return ModelServer(*steps)
        if self.agent in openai.VERSIONS:
            return openai.ResponsesServer(*steps)
        return completions.CompletionsServer(*steps)

    def run(self, *steps: Step, words: tuple[str, ...] = ()) -> RunResult:
        """Run one task to its end; no process may be left over."""
        with self.start(*steps, words=words) as run:
            return run.finish()

    @contextmanager
    def start(
        self,
        *steps: Step,
        words: tuple[str, ...] = (),
        command: tuple[str, ...] = ("run", "--json"),
    ) -> Iterator["ActiveRun"]:
        """Start one task, or another command that takes the options of `run`."""
        with self.serve(*steps) as server:
            process = subprocess.Popen(
                program.argv(
                    *(*command, "--agent", self.agent, "--program", self.path),
                    *self._options(words),
                    "Do it.",
                    *self._agent_args(server.url),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.work,
                env=program.environment(self.data, self._env(server.url)),
            )
            run = ActiveRun(process, server)
            try:
                yield run
            finally:
                run.kill()

    def ask(self, *words: str) -> program.Ended:
        """Run another command of steno in the same place."""
        return program.steno(self.data, *words, cwd=self.work, HOME=str(self.home))

    def _env(self, url: str) -> dict[str, str]:
        own = {"HOME": str(self.home), "PATH": search_path(self.path)}
        return {**self._clean_env(url), **own}

    def _clean_env(self, url: str) -> dict[str, str]:
        if self.is_claude:
            return claude.clean_env(self.home, url)
        if self.agent in openai.VERSIONS:
            return openai.clean_env(self.agent, self.home, url)
        return completions.clean_env(self.agent, self.home, url)

    def _options(self, words: tuple[str, ...]) -> tuple[str, ...]:
        mode = ("--permission-mode", BYPASS_MODES.get(self.agent, "bypassPermissions"))
        model: tuple[str, ...] = ()
        if self.agent in ("gemini", "opencode"):
            model = ("--model", completions.MODELS[self.agent])
        return (*mode, *model, "--attempts", "1", "--on-limit", "fail", *words)

    def _agent_args(self, url: str) -> tuple[str, ...]:
        if self.agent == "codex":
            return ("--", *openai.settings(self.agent, url))
        return ("--", "--auth-type", "openai") if self.agent == "qwen" else ()


class ActiveRun:
    """A `steno run` that was started."""

    def __init__(self, process: "subprocess.Popen[bytes]", server: Server) -> None:
        self.process = process
        self.server = server

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LONG
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        self.process.send_signal(signal.SIGINT)

    def finish(self) -> RunResult:
        """Wait for its end; no process may be left over."""
        out, err = self.process.communicate(timeout=LONG)
        assert self.running_commands() == []
        return RunResult(self.process.returncode, json.loads(out), err.decode("utf-8", "replace"))

    def running_commands(self) -> list[str]:
        """The command lines of the processes that this steno started."""
        return [
            process_tree.command_line_of(process.pid)
            for process in process_tree.list_processes()
            if self.process.pid
            in [tag.steno_pid for tag in run_tag.parse_run_tags(process.run_tags)]
        ]

    def kill(self) -> None:
        """Kill what a failed test left over."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
