"""The parrot: how to start it, and how to read its output. An example of an agent outside steno.

Tokens. A run is one request, and its last line has the usage: `heard` includes `remembered`, which
is like a cache. So input is heard - remembered, cache_read is remembered, output is said; there are
no cache writes.

End of a run. `sleeps` is the result, with `ok`. Without it the run was cut off.
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
    ProgramInfo,
)
from steno.codec.decode import Count, decode_lenient, decoder
from steno.event import EventHead
from steno.report import HintTemplates


class TokenUsage(Struct):
    heard: Count | None = None
    remembered: Count | None = 0
    said: Count | None = None


class Line(Struct):
    """The fields of all lines. Each has a default, used by `decode_lenient` for a wrong type."""

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
    used: TokenUsage | None = None


class ParrotReader:
    """Turns the lines of one run into events."""

    def __init__(self) -> None:
        self._first = Line()
        self._last_text = ""

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line; raises if it does not fit: `read_lenient` is next."""
        return self._events(decoder(Line).decode(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line, ignoring fields of a wrong type."""
        return self._events(decode_lenient(data, Line), data, number, at)

    def state(self) -> bytes:
        """Return nothing: there are no transcripts that grow."""
        return b""

    def restore(self, state: bytes) -> None:
        """Do nothing: there is no state."""

    def _events(self, line: Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        head = (number, line.session or self._first.session, None, at)
        if line.parrot == "wakes":
            self._first = line
            return [ev.Started(*head, agent_version=line.version, model=line.model, cwd=line.cwd)]
        if line.parrot == "says":
            self._last_text = line.text or ""
            return [ev.Text(*head, "said", self._last_text)]
        if line.parrot == "writes" and line.path is not None:
            call = line.call or f"line {number}"
            return [
                ev.ToolCall(*head, call, "write", "file_write"),
                ev.ToolResult(*head, call, False),
                ev.FileChanged(*head, line.path, "created" if line.created else "modified", call),
            ]
        if line.parrot == "sleeps":
            return self._end(head, line)
        return [ev.Unknown(*head, line.parrot or "no kind", data)]

    def _end(self, head: EventHead, line: Line) -> list[ev.Event]:
        failed = line.ok is not True
        text = line.why if failed else self._last_text
        result = ev.Result(
            *head,
            subtype="error" if failed else "success",
            is_error=failed,
            text=text,
            errors=(text,) if failed and text else (),
            turns=1,
        )
        return [result] if line.used is None else [self._usage(head, line.used), result]

    def _usage(self, head: EventHead, used: TokenUsage) -> ev.Usage:
        input_ = None
        if used.heard is not None and used.remembered is not None:
            input_ = max(0, used.heard - used.remembered)
        return ev.Usage(
            *head,
            message="said",
            model=self._first.model,
            input=input_,
            cache_write=0,
            cache_read=used.remembered,
            output=used.said,
            final=True,
        )


def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    """Build the command. The prompt is passed on stdin: any length, any first character."""
    argv = [program]
    if options.model is not None:
        argv += ["--model", options.model]
    if options.resume is not None:
        argv += ["--resume", options.resume]
    return LaunchCommand((*argv, *options.extra), options.prompt.encode("utf-8", "surrogateescape"))


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a line can be the parrot's. Keep this narrow: other agents print JSON too."""
    return isinstance(line.get("parrot"), str)


def is_session_id(text: str) -> bool:
    """Whether a text is a session id; other texts may be the start of a run id."""
    return re.fullmatch(r"parrot-[0-9a-f]{8}", text) is not None


# Options that the parrot does not have: steno refuses them before it starts anything.
UNSUPPORTED_OPTIONS = (
    "session_id",
    "fork",
    "continue_",
    "max_turns",
    "max_cost",
    "permission_mode",
    "allow",
    "deny",
    "system_prompt",
    "add_dirs",
    "mcp_config",
    "fallback_model",
    "json_schema",
    "partial",
    "steer",
)
AGENT = Agent(
    name="parrot",
    reader=ParrotReader,
    context_window=lambda model: 1_000 if model == "grey" else None,
    looks_like=looks_like,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, context=True, file_events=True),
    hints=HintTemplates(resume="echo {prompt} | parrot --resume {session}"),
    launch=Launch(
        build_command=build_command,
        env_policy=EnvPolicy(drop=("PARROT_CAGE",), defaults=(), api_key_names=("PARROT_KEY",)),
        unsupported_options=UNSUPPORTED_OPTIONS,
    ),
    installation=Installation(
        command="pip install ./examples/parrot",
        tested_versions=("1.0",),
    ),
)
