"""The agents this version can read, as values. One module or package per agent; it never reads a file.

An agent is a name and what must be asked of it: a reader for its lines, the window of a model, the
rule that would allow a refused call, and whether a line looks like its own.
"""

from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..event import Event
from ..report import StenoError
from . import claude


class LineReader(Protocol):
    """Turns lines into events.

    `read` raises one of `decode.MISFIT` on a line of an odd shape, `salvage` never raises, and `read_all` is `read` for
    many lines: it asks `odd` for the events of a line that does not fit, and returns the number of the last line.
    """

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def read_all(
        self, lines: Iterable[bytes], number: int, odd: Callable[[bytes, int], list[Event]]
    ) -> Generator[list[Event], None, int]: ...

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...


class Agent(Struct, frozen=True):
    """A program such as claude: how to read it."""

    name: str
    reader: Callable[[], LineReader]
    window: Callable[[str], int | None]
    allow_rule: Callable[[str, Any, str | None], str]
    looks_like: Callable[[dict[str, Any]], bool]


CLAUDE = Agent("claude", claude.Reader, claude.window, claude.allow_rule, claude.looks_like)
AGENTS = {CLAUDE.name: CLAUDE}


def named(name: str | None) -> Agent | None:
    """The agent of that name; None (tell it by the bytes) for None."""
    if name is None:
        return None
    if name not in AGENTS:
        raise StenoError(f"no agent is called {name!r}; known: {', '.join(AGENTS)}")
    return AGENTS[name]


def sniff(line: bytes) -> Agent | None:
    """The agent whose line this can be, told by its bytes and never by a file's name (I1)."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return next((agent for agent in AGENTS.values() if agent.looks_like(value)), None)
