"""R2: the environment that an agent is started in."""

from steno.agents.base import build_environment
from steno.agents.claude import ENV_POLICY as CLAUDE_ENV_POLICY


def test_a_run_from_within_a_run_knows_nothing_of_it() -> None:
    """The marker of the outer session and all that ties to it are gone; what is not the agent's stays."""
    outer = dict.fromkeys(CLAUDE_ENV_POLICY.drop, "1")
    assert build_environment(
        {**outer, "PATH": "/bin", "CLAUDE_CONFIG_DIR": "/c"}, CLAUDE_ENV_POLICY
    ) == {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": "/bin",
        "CLAUDE_CONFIG_DIR": "/c",
    }


def test_what_a_person_set_stands() -> None:
    """No setting of ours overrules one of theirs, and theirs for this run overrules all."""
    mine = {"DISABLE_AUTOUPDATER": "0", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "", "A": "1"}
    assert build_environment(mine, CLAUDE_ENV_POLICY, extra={"A": "2"}) == {**mine, "A": "2"}


def test_keys_can_be_withheld() -> None:
    """A key is passed on, or not; a subscription's sign-in always is."""
    keys = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "CLAUDE_CODE_OAUTH_TOKEN": "o"}
    assert keys.items() <= build_environment(keys, CLAUDE_ENV_POLICY).items()
    assert build_environment(keys, CLAUDE_ENV_POLICY, include_api_keys=False) == {
        **dict(CLAUDE_ENV_POLICY.defaults),
        "CLAUDE_CODE_OAUTH_TOKEN": "o",
    }
