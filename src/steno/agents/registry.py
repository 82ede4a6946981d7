"""The known agents, and detection of the one that printed a line, without loading a reader. Pure.

Each test is narrow enough to reject the lines of the other agents. Qwen Code prints the same lines
as Claude Code; only its first line identifies it, so a line that fits both is not Qwen's.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from ..codec.decode import DECODE_ERRORS
from ..errors import StenoError
from .base import Agent, LaunchCommand, LaunchOptions, ProgramInfo
from .claude import AGENT as CLAUDE
from .plugins import load_plugins

JsonObject = dict[str, Any]
_CODEX_TYPE_PREFIXES = ("thread.", "turn.", "item.")
_CODEX_ROLLOUT_TYPES = frozenset(
    {
        "session_meta",
        "turn_context",
        "response_item",
        "event_msg",
        "compacted",
        "token_usage_record",
        "world_state",
    }
)
_OPENCODE_TYPES = frozenset({"step_start", "text", "reasoning", "tool_use", "step_finish", "error"})
_GEMINI_TYPES = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})


def _type_of(line: JsonObject) -> str | None:
    kind = line.get("type")
    return kind if isinstance(kind, str) else None


def is_codex(line: JsonObject) -> bool:
    """A line of `codex exec --json`, or of a rollout: see `codex.wire` for their forms."""
    kind = _type_of(line)
    if kind is None:
        return _is_older_codex(line)
    return kind.startswith(_CODEX_TYPE_PREFIXES) or (
        kind in _CODEX_ROLLOUT_TYPES and "timestamp" in line
    )


def _is_older_codex(line: JsonObject) -> bool:
    """A line without a type: the first two of a stream up to 0.42, and those of older rollouts."""
    message = line.get("msg")
    if isinstance(message, dict):
        return line.keys() == {"id", "msg"} and "type" in message
    if isinstance(line.get("items"), list) and isinstance(line.get("session"), dict):
        return "instructions" in line["session"]
    return (
        line.keys() >= {"workdir", "provider", "sandbox"}
        or line.keys() >= {"id", "timestamp", "instructions"}
        or line.get("record_type") == "state"
    )


def is_copilot(line: JsonObject) -> bool:
    """All lines have `data` and `id`, except the result, which has `exitCode`."""
    kind = _type_of(line)
    if kind is None:
        return False
    return (isinstance(line.get("data"), dict) and "id" in line) or (
        kind == "result" and "exitCode" in line
    )


def is_opencode(line: JsonObject) -> bool:
    """All lines have a `sessionID`, in this spelling."""
    return _type_of(line) in _OPENCODE_TYPES and "sessionID" in line


def is_gemini(line: JsonObject) -> bool:
    """A stream line, the document of `--output-format json`, or a chat file."""
    kind = _type_of(line)
    if kind is None:
        return ("session_id" in line and ("response" in line or "error" in line)) or (
            "sessionId" in line and "projectHash" in line
        )
    if (
        kind not in _GEMINI_TYPES
        or not isinstance(line.get("timestamp"), str)
        or "subtype" in line
        or "sessionId" in line
    ):
        return False
    return kind != "result" or "status" in line


def is_qwen(line: JsonObject) -> bool:
    """The first line of a stream, or a transcript line: `parts` where Claude Code has `content`."""
    if "qwen_code_version" in line:
        return True
    message = line.get("message")
    return "sessionId" in line and isinstance(message, dict) and "parts" in message


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
# In the order of the tests; Claude Code is last, see `registry.detect_builtin`.
LINE_DETECTORS: dict[str, Callable[[JsonObject], bool]] = {
    "codex": is_codex,
    "copilot": is_copilot,
    "opencode": is_opencode,
    "gemini": is_gemini,
    "qwen": is_qwen,
}


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


def detect_agent(line: bytes) -> Agent | None:
    """Return the agent that can have printed a line, going by its fields; built-in ones first."""
    try:
        value = msgspec.json.decode(line)
    except DECODE_ERRORS:
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
    """Return the name of the built-in agent that can have printed a decoded line."""
    if "claude_code_version" in line and "qwen_code_version" not in line:
        return CLAUDE.name  # its first line; no other agent prints this field
    for name, matches in LINE_DETECTORS.items():
        if matches(line):
            return name
    return CLAUDE.name if CLAUDE.looks_like(line) else None


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
