"""The known agents, and detection of the one that printed an input. Pure."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from ..codec.decode import DECODE_ERRORS
from ..errors import StenoError
from .base import Agent, LaunchCommand, LaunchOptions, ProgramInfo
from .claude import AGENT as CLAUDE
from .line_shapes import SHAPES, imitated_session
from .plugins import load_plugins

# Texts that only one agent prints to stderr when it fails before its first line.
STDERR_MARKERS = {
    "codex": ("codex_home:", "Usage: codex ", "codex_core::", "OpenAI Codex v", "codex login"),
    "copilot": (
        "Copilot can be authenticated",
        "copilot --help",
        "copilot --resume",
        "GitHub Copilot CLI",
    ),
    "gemini": ("Gemini API", "Gemini CLI", "gemini [options]"),
    "opencode": ("opencode run [message..]", "Session not found: ses_"),
    "qwen": ("Qwen Code", "qwen [options]", "QWEN_CODE_"),
}

MAX_IMITATED_SESSIONS = 1000  # remembered of one input
REPLAY_AGENT_NAME = "replay"
# -P: the current folder may contain modules with the names of ours.
REPLAY_ARGS = ("-P", "-m", "steno", REPLAY_AGENT_NAME)


class AgentRegistry(Mapping[str, Agent]):
    """All agents by name: the built-in ones, loaded on first use, then those of other packages.

    `problems`: one line for each problem with agents of other packages so far.
    """

    def __init__(self, *names: str) -> None:
        self.problems: dict[str, str] = {}
        self._builtin: dict[str, Agent | None] = {CLAUDE.name: CLAUDE, **dict.fromkeys(names)}
        self._plugins: dict[str, Agent] | None = None

    def __getitem__(self, name: str) -> Agent:
        if name not in self._builtin:
            return self.plugins[name]
        agent = self._builtin[name]
        if agent is None:
            agent = self._builtin[name] = import_module(f".{name}", __package__).AGENT
        return agent

    def __iter__(self) -> Iterator[str]:
        return iter((*self._builtin, *self.plugins))

    def __len__(self) -> int:
        return len(self._builtin) + len(self.plugins)

    @property
    def plugins(self) -> Mapping[str, Agent]:
        """The agents of other packages, loaded when the first of them is needed."""
        if self._plugins is None:
            self._plugins = {}  # a package may use this registry while it is being loaded
            reserved_names = {*self._builtin, REPLAY_AGENT_NAME}
            load_plugins(self._plugins, reserved_names, self.problems)
        return self._plugins


AGENTS = AgentRegistry("codex", "copilot", "gemini", "opencode", "qwen")


def get_agent(name: str | None, also: tuple[str, ...] = ()) -> Agent | None:
    """Return an agent by name; None for None (detect it). `also`: more names for the message."""
    if name is None:
        return None
    if name not in AGENTS:
        known = ", ".join((*AGENTS, *also))
        raise StenoError(AGENTS.problems.get(name) or f"unknown agent {name!r}; known: {known}")
    return AGENTS[name]


def unknown_agent_message(name: str) -> str | None:
    """Return an error message; None for a known agent, or a plugin that could not be loaded."""
    if name in AGENTS or name in AGENTS.problems:
        return None
    from difflib import get_close_matches

    matches = get_close_matches(name, AGENTS, 1)
    hint = f"did you mean {matches[0]}?" if matches else f"known: {', '.join(AGENTS)}"
    return f"unknown agent {name!r}; {hint}"


class AgentDetector:
    """Detects the agent of an input, object by object, going by their fields.

    The lines of another program may have all fields of Claude Code's. What it printed first shows
    whose they are, so that no later line of such a session is an agent's.
    """

    def __init__(self) -> None:
        self._imitated_sessions: set[str] = set()

    def detect(self, data: bytes) -> Agent | None:
        """Return the agent that can have printed an object, built-in ones first.

        Raises one of DECODE_ERRORS if it is not valid JSON.
        """
        value = msgspec.json.decode(data)
        if not isinstance(value, dict):
            return None
        name = self._detect_builtin(value)
        if name is not None:
            return AGENTS[name]
        return next((agent for agent in AGENTS.plugins.values() if agent.looks_like(value)), None)

    def _detect_builtin(self, line: dict[str, Any]) -> str | None:
        session = imitated_session(line)
        if session is not None and len(self._imitated_sessions) < MAX_IMITATED_SESSIONS:
            self._imitated_sessions.add(session)
        if self._imitated_sessions:
            session = line.get("session_id")
            if isinstance(session, str) and session in self._imitated_sessions:
                return None
        return detect_builtin(line)


def detect_agent(line: bytes) -> Agent | None:
    """Return the agent that can have printed a line, if the line alone shows it."""
    try:
        return AgentDetector().detect(line)
    except DECODE_ERRORS:
        return None


def detect_builtin(line: dict[str, Any]) -> str | None:
    """Return the name of the built-in agent that can have printed a decoded line."""
    if "claude_code_version" in line and "qwen_code_version" not in line:
        return CLAUDE.name  # its first line; no other agent prints this field
    return next((name for name, matches in SHAPES.items() if matches(line)), None)


def detect_stderr(text: str) -> Agent | None:
    """Return the agent that prints such a line to stderr, for a run without stdout."""
    for name, markers in STDERR_MARKERS.items():
        if any(marker in text for marker in markers):
            return AGENTS[name]
    return None


def replay_agent(agent: Agent, recording: str, speed: float) -> Agent:
    """Return the agent with a command that replays a recording; `program` is steno's Python."""

    def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
        return LaunchCommand((program, *REPLAY_ARGS, "--speed", f"{speed:g}", "--", recording))

    launch = msgspec.structs.replace(
        agent.launch, build_command=build_command, help_args=(), option_names={}
    )
    return msgspec.structs.replace(agent, launch=launch)
