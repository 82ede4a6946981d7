"""The agents that this version knows, as values. One module or package per agent; it never reads a file.

An agent is a name and what must be asked of it: how it is started, a reader for its lines, the window of a model, the
rule that would allow a refused call, and whether a line looks like its own. Each is loaded when it is asked for: a stream of
one agent does not pay for the others.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

import msgspec

from .. import environment
from ..report import StenoError, Wording
from . import claude, tell
from .replay import NAME as REPLAY
from .replay import replayed
from .values import Abilities, Agent, Ask, Keeper, LineReader, Start

__all__ = [
    "AGENTS",
    "CLAUDE",
    "REPLAY",
    "Abilities",
    "Agent",
    "Ask",
    "Keeper",
    "LineReader",
    "Start",
    "blurted",
    "named",
    "replayed",
    "sniff",
]

CLAUDE = Agent(
    "claude",
    claude.Reader,
    claude.window,
    claude.allow_rule,
    claude.looks_like,
    claude.keeps,
    claude.folders,
    claude.usages,
    claude.start,
    claude.message,
    environment.CLAUDE,
    "npm install -g @anthropic-ai/claude-code",
    claude.is_session,
    (),
    Abilities(resume=True, json=True, partial=True, budget=True, schema=True, context=True, cost=True, file_events=True),
    Wording(
        "claude --resume {session} -p {prompt}",
        "--max-turns N",
        "--allowedTools {rules}",
        "--output-format stream-json --verbose",
    ),
    "@anthropic-ai/claude-code",
    ("1.0.100", "2.0.37", "2.1.50", "2.1.197", "2.1.325"),
    credentials=(".claude/.credentials.json",),
    sizes=claude.SIZES,
    shapes=claude.shapes,
)


class Agents(Mapping[str, Agent]):
    """Every agent by its name. The value of one is the AGENT of the module of that name, loaded when it is asked for."""

    def __init__(self, *names: str) -> None:
        self._loaded: dict[str, Agent | None] = {CLAUDE.name: CLAUDE, **dict.fromkeys(names)}

    def __getitem__(self, name: str) -> Agent:
        agent = self._loaded[name]
        if agent is None:
            agent = self._loaded[name] = import_module(f".{name}", __name__).AGENT
        return agent

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)


AGENTS = Agents("codex", "copilot", "gemini", "opencode", "qwen")


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
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        return None
    name = next((name for name, mark in tell.MARKS.items() if mark(value) and name in AGENTS), None)
    if name is not None:
        return AGENTS[name]
    return CLAUDE if CLAUDE.looks_like(value) else None


def blurted(text: str) -> Agent | None:
    """The agent that writes such a line to stderr, for a run that printed nothing to stdout."""
    name = tell.blurted(text)
    return AGENTS[name] if name is not None and name in AGENTS else None
