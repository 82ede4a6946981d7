"""Every agent under one hand: the real programs, each in an empty place, on a scripted model.

`steno run` is started as a real process, as a person would. `claude`, `openai` and `completions` know what each program needs.
A version of Claude Code is named with it: "claude 2.1.325".
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

from steno.process import process_info as mark
from steno.process import process_table as kin

from . import claude, completions, openai, program
from .modelserver import Call, ModelServer, Step

AGENTS = ("codex", "copilot", "gemini", "opencode", "qwen")
UNASKED = {
    "gemini": "yolo",
    "opencode": "yolo",
    "qwen": "yolo",
}  # the others have the word of every agent
LONG = 300.0  # seconds; nothing here needs a tenth of it, the machine may be slow

Server = openai.ResponsesServer | ModelServer


def shell(agent: str, command: str) -> Call:
    """The call that runs a command."""
    if agent == "codex":
        return Call("exec_command", {"cmd": command})
    name = {"copilot": "bash", "opencode": "bash"}.get(agent, "run_shell_command")
    more = {"is_background": False} if agent == "qwen" else {}
    return Call(name, {"command": command, "description": "run it", **more})


def write(agent: str, path: Path, text: str) -> Call:
    """The call that makes a file of one line."""
    if agent == "codex":
        return Call(
            "apply_patch",
            {"patch": f"*** Begin Patch\n*** Add File: {path.name}\n+{text}*** End Patch\n"},
        )
    if agent == "copilot":
        return Call("create", {"path": str(path), "file_text": text})
    if agent == "opencode":
        return Call("write", {"filePath": str(path), "content": text})
    return Call("write_file", {"file_path": str(path), "content": text})


class Done(Struct, frozen=True):
    """How one `steno run --json` ended."""

    code: int
    report: dict[str, Any]
    err: str


class Place:
    """A home, a folder to work in, and steno's own data, all empty at first. Several runs can follow one another in it."""

    def __init__(self, name: str, folder: Path, shared: Path | None = None) -> None:
        self.agent, _, self.version = name.partition(" ")
        self.data, self.home, self.work = (
            (shared or folder) / "data",
            (shared or folder) / "home",
            folder / "work",
        )
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True)
        known = openai if self.agent in openai.VERSIONS else completions
        self.path = claude.installed(self.version) if self.version else known.installed(self.agent)

    def serve(self, *steps: Step) -> Server:
        """The scripted model that this agent talks to."""
        if self.version:
            return ModelServer(*steps)
        return (
            openai.ResponsesServer(*steps)
            if self.agent in openai.VERSIONS
            else completions.CompletionsServer(*steps)
        )

    def run(self, *steps: Step, words: tuple[str, ...] = ()) -> Done:
        """One task, to its end. Nothing of it may be left."""
        with self.begun(*steps, words=words) as begun:
            return begun.end()

    @contextmanager
    def begun(self, *steps: Step, words: tuple[str, ...] = ()) -> Iterator["Begun"]:
        """One task that has begun."""
        with self.serve(*steps) as server:
            env = {**self._env(server.url), "HOME": str(self.home)}
            asked = (
                "run",
                "--json",
                "--agent",
                self.agent,
                "--program",
                self.path,
                *self._words(words),
                "Do it.",
            )
            argv = program.argv(*asked, *self._own(server.url))
            process = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.work,
                env=program.environment(self.data, env),
            )
            begun = Begun(process, server)
            try:
                yield begun
            finally:
                begun.over()

    def ask(self, *words: str) -> program.Ended:
        """Another command of steno, in the same place."""
        return program.steno(self.data, *words, cwd=self.work, HOME=str(self.home))

    def _env(self, url: str) -> dict[str, str]:
        if self.version:  # noqa: SIM108
            env = claude.clean_env(self.home, url)
        else:
            env = (openai if self.agent in openai.VERSIONS else completions).clean_env(
                self.agent, self.home, url
            )
        return {name: value for name, value in env.items() if name != "PATH"}

    def _words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        mode = ("--permission-mode", UNASKED.get(self.agent, "bypassPermissions"))
        model = (
            ("--model", completions.MODELS[self.agent])
            if self.agent in ("gemini", "opencode")
            else ()
        )
        return (*mode, *model, "--attempts", "1", "--on-limit", "fail", *words)

    def _own(self, url: str) -> tuple[str, ...]:
        if self.agent == "codex":
            return ("--", *openai.settings(self.agent, url))
        return ("--", "--auth-type", "openai") if self.agent == "qwen" else ()


class Begun:
    """A `steno run` that goes on."""

    def __init__(self, process: "subprocess.Popen[bytes]", server: Server) -> None:
        self.process, self.server = process, server

    def until(self, what: Callable[[], bool]) -> None:
        """Wait until it is so."""
        end = time.monotonic() + LONG
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def interrupt(self) -> None:
        """As a person does, with Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> Done:
        """To its end: what it said, and nothing of it is left."""
        out, err = self.process.communicate(timeout=LONG)
        assert self.left() == []
        return Done(self.process.returncode, json.loads(out), err.decode("utf-8", "replace"))

    def left(self) -> list[str]:
        """The command lines of what this steno started and what still lives."""
        own = [
            one
            for one in kin.list_processes()
            if self.process.pid in [found.steno_pid for found in mark.parse_run_tags(one.run_tags)]
        ]
        return [kin.command_line_of(one.pid) for one in own]

    def over(self) -> None:
        """Whatever a failed test left behind goes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
