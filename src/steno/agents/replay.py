"""The agent that plays a tape: the reader of the agent that is on it, and our own program in that one's place. Pure."""

import msgspec

from .values import Agent, Ask, Start

NAME = "replay"
# -P: the folder that it is started in may hold modules with the names of ours.
WORDS = ("-P", "-m", "steno", NAME)


def replayed(agent: Agent, tape: str, speed: float) -> Agent:
    """That agent, as the tape plays it. The program that it is started with is a Python that has steno."""

    def start(ask: Ask, program: str, version: str | None = None) -> Start:
        return Start((program, *WORDS, "--speed", f"{speed:g}", "--", tape))

    return msgspec.structs.replace(agent, start=start)
