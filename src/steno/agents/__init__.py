"""The agents that this version knows, as values. One module or package per agent; it never reads a file.

An agent is a name and what must be asked of it: how it is started, a reader for its lines, the window of a model, the
rule that would allow a refused call, and whether a line looks like its own. Each is loaded when it is asked for: a stream of
one agent does not pay for the others. Those of other packages (`outside`) are looked for last, and only where no agent of
our own is meant.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from ..errors import StenoError
from ..report import HintTemplates
from . import base as environment
from . import claude
from . import detection as tell
from .backend import Backend
from .base import (
    Agent,
    Capabilities,
    EnrichingReader,
    Installation,
    Launch,
    LaunchCommand,
    LaunchOptions,
    LineReader,
    Transcripts,
)
from .plugins import PluginAgents
from .replay import REPLAY_AGENT_NAME, replay_agent

__all__ = [
    "AGENTS",
    "CLAUDE",
    "REPLAY_AGENT_NAME",
    "Agent",
    "Backend",
    "Capabilities",
    "EnrichingReader",
    "LaunchCommand",
    "LaunchOptions",
    "LineReader",
    "detect_agent",
    "detect_builtin",
    "detect_stderr",
    "get_agent",
    "replay_agent",
    "unknown_agent_message",
]

CLAUDE = Agent(
    name="claude",
    reader=claude.ClaudeReader,
    context_window=claude.context_window,
    allow_rule=claude.allow_rule,
    looks_like=claude.looks_like,
    is_session_id=claude.is_session_id,
    capabilities=Capabilities(
        resume=True,
        json=True,
        partial=True,
        budget=True,
        schema=True,
        context=True,
        cost=True,
        file_events=True,
    ),
    hints=HintTemplates(
        resume="claude --resume {session} -p {prompt}",
        turns="--max-turns N",
        allow="--allowedTools {rules}",
        stream="--output-format stream-json --verbose",
    ),
    launch=Launch(
        build_command=claude.build_command,
        encode_message=claude.encode_message,
        env_policy=environment.CLAUDE_ENV_POLICY,
        backends=("ollama", "anthropic"),
        models_by_size=claude.MODELS_BY_SIZE,
        supports_schema=claude.supports_schema,
    ),
    transcripts=Transcripts(
        is_line=claude.is_transcript_line,
        folders=claude.transcript_folders,
        scan_usage=claude.scan_usage,
    ),
    installation=Installation(
        command="npm install -g @anthropic-ai/claude-code",
        npm_package="@anthropic-ai/claude-code",
        tested_versions=("1.0.100", "2.0.37", "2.1.50", "2.1.197", "2.1.325"),
        credential_files=(".claude/.credentials.json",),
    ),
)


class AgentRegistry(Mapping[str, Agent]):
    """Every agent by its name. The value of one is the AGENT of the module of that name, loaded when it is asked for.

    `outside` are those of other packages, `problems` what is wrong with some of these, in one line each.
    """

    def __init__(self, *names: str) -> None:
        self._loaded: dict[str, Agent | None] = {CLAUDE.name: CLAUDE, **dict.fromkeys(names)}
        self._plugins = PluginAgents({*self._loaded, REPLAY_AGENT_NAME})

    def __getitem__(self, name: str) -> Agent:
        if name not in self._loaded:
            return self.plugins[name]
        agent = self._loaded[name]
        if agent is None:
            agent = self._loaded[name] = import_module(f".{name}", __name__).AGENT
        return agent

    def __iter__(self) -> Iterator[str]:
        return iter((*self._loaded, *self.plugins))

    def __len__(self) -> int:
        return len(self._loaded) + len(self.plugins)

    @property
    def plugins(self) -> Mapping[str, Agent]:
        """The agents of other packages."""
        return self._plugins.agents

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong with agents of other packages, as far as they were asked for."""
        return self._plugins.problems


AGENTS = AgentRegistry("codex", "copilot", "gemini", "opencode", "qwen")


def get_agent(name: str | None, also: tuple[str, ...] = ()) -> Agent | None:
    """The agent of that name; None (detect the format) for None. `also` are valid names that are
    not agents, listed in the error message."""
    if name is None:
        return None
    if name not in AGENTS:
        raise StenoError(
            AGENTS.problems.get(name)
            or f"unknown agent {name!r}; known: {', '.join((*AGENTS, *also))}"
        )
    return AGENTS[name]


def unknown_agent_message(name: str) -> str | None:
    """The error message for an unknown name; None for an agent, also for a plugin that failed to
    load."""
    if name in AGENTS or name in AGENTS.problems:
        return None
    from difflib import get_close_matches

    near = get_close_matches(name, AGENTS, 1)
    return f"unknown agent {name!r}; " + (
        f"did you mean {near[0]}?" if near else f"known: {', '.join(AGENTS)}"
    )


def detect_agent(line: bytes) -> Agent | None:
    """The agent whose line this can be, told by its bytes and never by a file's name (I1). Our own are asked first."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        return None
    name = detect_builtin(value)
    if name is not None:
        return AGENTS[name]
    return next((agent for agent in AGENTS.plugins.values() if agent.looks_like(value)), None)


def detect_builtin(line: dict[str, Any]) -> str | None:
    """The name of the agent of ours whose decoded line this can be."""
    name = next((name for name, mark in tell.LINE_DETECTORS.items() if mark(line)), None)
    return CLAUDE.name if name is None and CLAUDE.looks_like(line) else name


def detect_stderr(text: str) -> Agent | None:
    """The agent that writes such a line to stderr, for a run that printed nothing to stdout."""
    name = tell.detect_stderr(text)
    return AGENTS[name] if name is not None and name in AGENTS else None
