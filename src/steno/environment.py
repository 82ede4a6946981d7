"""The environment that an agent is started in (R2), as a function of ours. Pure: it reads no environment by itself.

An agent that is started from within another one must not take itself for a part of it, and one that runs without a
person must neither update itself nor talk to anybody but the model. What a person has set stands.
"""

from collections.abc import Mapping

from msgspec import Struct


class EnvPolicy(Struct, frozen=True):
    """What one agent needs: names that only its own parent session sets, settings, and the names of its keys."""

    drop: tuple[str, ...]
    defaults: tuple[tuple[str, str], ...]
    api_key_names: tuple[str, ...]


# Seen in the environment of a command that Claude Code 2.1.197 and 2.1.325 ran, and set by no person. CLAUDECODE is the
# marker itself; the others would tie the new session to the old one, or name the old one as its parent.
CLAUDE_ENV_POLICY = EnvPolicy(
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
    defaults=(("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")),
    api_key_names=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),  # the sign-in of a subscription is not among them
)


def build_environment(
    inherited: Mapping[str, str], agent: EnvPolicy, *, include_api_keys: bool = True, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a run. `keys` False withholds the agent's keys; `more` is added last and wins."""
    without = {*agent.drop, *(() if include_api_keys else agent.api_key_names)}
    return {**dict(agent.defaults), **{name: value for name, value in inherited.items() if name not in without}, **(extra or {})}
