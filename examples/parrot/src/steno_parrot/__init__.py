"""The parrot: how to start it, and how to read what it prints. An example of an agent that is no part of steno.

Token algebra. There is one request in a run, and its end tells all of it: `heard` includes `remembered`, which is what a
cache would be. So input is heard - remembered, cache_read is remembered, output is said; it writes to no cache.

Ends. `sleeps` is the result, with `ok`. Without it the run was cut.
"""

import re
from datetime import datetime
from typing import Any

from msgspec import Struct

from steno import event as ev
from steno.agents.base import (
    Agent,
    Capabilities,
    EnvPolicy,
    Installation,
    Launch,
    LaunchCommand,
    LaunchOptions,
)
from steno.codec.decode import Count, decode_lenient, decoder
from steno.report import HintTemplates


class Used(Struct):
    heard: Count | None = None
    remembered: Count | None = 0
    said: Count | None = None


class Line(Struct):
    """Every field that some line has. Each has a default: `lenient` leaves out what is of a wrong type."""

    parrot: str = ""
    version: str | None = None
    session: str | None = None
    model: str | None = None
    cwd: str | None = None
    call: str | None = None
    path: str | None = None
    created: bool | None = None
    text: str | None = None
    ok: bool | None = None
    why: str | None = None
    used: Used | None = None


class Reader:
    """Turns the lines of one run into events. It remembers the session and the last that was said."""

    def __init__(self) -> None:
        self._begun, self._text = Line(), ""

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; what does not fit raises, and comes back by `read_lenient`."""
        return self._events(decoder(Line).decode(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The same, without the fields that are of a wrong type."""
        return self._events(decode_lenient(data, Line), data, number, at)

    def state(self) -> bytes:
        """It keeps no transcripts: nothing is read in parts."""
        return b""

    def restore(self, state: bytes) -> None:
        """Nothing was remembered."""

    def _events(self, line: Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        head = (number, line.session or self._begun.session, None, at)
        if line.parrot == "wakes":
            self._begun = line
            return [ev.Started(*head, agent_version=line.version, model=line.model, cwd=line.cwd)]
        if line.parrot == "says":
            self._text = line.text or ""
            return [ev.Text(*head, "said", self._text)]
        if line.parrot == "writes" and line.path is not None:
            call, change = line.call or f"line {number}", "created" if line.created else "modified"
            done = [
                ev.ToolCall(*head, call, "write", "file_write"),
                ev.ToolResult(*head, call, False),
            ]
            return [*done, ev.FileChanged(*head, line.path, change, call)]
        if line.parrot == "sleeps":
            return self._ended(head, line)
        return [ev.Unknown(*head, line.parrot or "no kind", data)]

    def _ended(
        self, head: tuple[int, str | None, None, datetime | None], line: Line
    ) -> list[ev.Event]:
        found: list[ev.Event] = []
        if line.used is not None:
            heard, remembered = line.used.heard, line.used.remembered
            fresh = None if heard is None or remembered is None else max(0, heard - remembered)
            found.append(
                ev.Usage(
                    *head,
                    "said",
                    self._begun.model,
                    fresh,
                    0,
                    remembered,
                    line.used.said,
                    final=True,
                )
            )
        failed = line.ok is not True
        text = line.why if failed else self._text
        errors = (text,) if failed and text else ()
        word = "error" if failed else "success"
        return [
            *found,
            ev.Result(*head, subtype=word, is_error=failed, text=text, errors=errors, turns=1),
        ]


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """Its command line for what is asked. The prompt goes by stdin: it may be of any length and begin with anything."""
    words = [program]
    for option, value in (("--model", ask.model), ("--resume", ask.resume)):
        words += [] if value is None else [option, value]
    return LaunchCommand((*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"))


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a decoded line can be its own. It must be narrow: other agents print JSON too."""
    return isinstance(line.get("parrot"), str)


def is_session_id(text: str) -> bool:
    """Whether a word can be the id of one of its sessions; what is none may be the beginning of a run's id."""
    return re.fullmatch(r"parrot-[0-9a-f]{8}", text) is not None


# What may be asked of an agent and this one has no words for: it is then said before anything is started.
UNSUPPORTED_OPTIONS = (
    "session_id", "fork", "continue_", "max_turns", "max_cost", "permission_mode", "allow", "deny", "system_prompt",
    "add_dirs", "mcp_config", "fallback_model", "json_schema", "partial", "steer",
)  # fmt: skip
AGENT = Agent(
    name="parrot",
    reader=Reader,
    context_window=lambda model: 1_000 if model == "grey" else None,
    looks_like=looks_like,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, context=True, file_events=True),
    hints=HintTemplates(
        resume="echo {prompt} | parrot --resume {session}",
    ),
    launch=Launch(
        build_command=build_command,
        env_policy=EnvPolicy(drop=("PARROT_CAGE",), defaults=(), api_key_names=("PARROT_KEY",)),
        unsupported_options=UNSUPPORTED_OPTIONS,
    ),
    installation=Installation(
        command="pip install steno-parrot",
        tested_versions=("1.0",),
    ),
)
