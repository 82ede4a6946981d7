"""The supported agents, as values: how to start each one and how to read its output."""

from .base import (
    Agent,
    Backend,
    Capabilities,
    EnrichingReader,
    LaunchCommand,
    LaunchOptions,
    LineReader,
    ProgramInfo,
)
from .claude import AGENT as CLAUDE
from .registry import (
    AGENTS,
    REPLAY_AGENT_NAME,
    AgentDetector,
    detect_agent,
    detect_builtin,
    detect_stderr,
    get_agent,
    replay_agent,
    unknown_agent_message,
)

__all__ = [
    "AGENTS",
    "CLAUDE",
    "REPLAY_AGENT_NAME",
    "Agent",
    "AgentDetector",
    "Backend",
    "Capabilities",
    "EnrichingReader",
    "LaunchCommand",
    "LaunchOptions",
    "LineReader",
    "ProgramInfo",
    "detect_agent",
    "detect_builtin",
    "detect_stderr",
    "get_agent",
    "replay_agent",
    "unknown_agent_message",
]
