"""The environment that an agent is started in (R2), as a function of ours. Pure: it reads no environment by itself.

An agent that is started from within another one must not take itself for a part of it, and one that runs without a
person must neither update itself nor talk to anybody but the model. What a person has set stands.
"""

from collections.abc import Mapping

from msgspec import Struct


class Surroundings(Struct, frozen=True):
    """What one agent needs: names that only its own parent session sets, settings, and the names of its keys."""

    drop: tuple[str, ...]
    put: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


# Seen in the environment of a command that Claude Code 2.1.197 and 2.1.325 ran, and set by no person. CLAUDECODE is the
# marker itself; the others would tie the new session to the old one, or name the old one as its parent.
CLAUDE = Surroundings(
    drop=(
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PID",
        "AI_AGENT",
    ),
    put=(("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),  # the sign-in of a subscription is not among them
)


def surround(
    inherited: Mapping[str, str], agent: Surroundings, *, keys: bool = True, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a run. `keys` False withholds the agent's keys; `more` is added last and wins."""
    without = {*agent.drop, *(() if keys else agent.keys)}
    return {**dict(agent.put), **{name: value for name, value in inherited.items() if name not in without}, **(more or {})}
