"""The agent that plays a tape: the reader of the agent that is on it, and our own program in that one's place. Pure."""

import msgspec

from .base import Agent, LaunchCommand, LaunchOptions

REPLAY_AGENT_NAME = "replay"
# -P: the folder that it is started in may hold modules with the names of ours.
REPLAY_ARGS = ("-P", "-m", "steno", REPLAY_AGENT_NAME)


def replay_agent(agent: Agent, tape: str, speed: float) -> Agent:
    """That agent, as the tape plays it. The program that it is started with is a Python that has steno."""

    def start(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
        return LaunchCommand((program, *REPLAY_ARGS, "--speed", f"{speed:g}", "--", tape))

    launch = msgspec.structs.replace(agent.launch, build_command=start)
    return msgspec.structs.replace(agent, launch=launch)
