"""The environment of an agent (R2)."""

from steno.agents.base import build_environment
from steno.agents.claude import ENV_POLICY


def test_variables_of_an_outer_session_are_dropped() -> None:
    outer = dict.fromkeys(ENV_POLICY.drop, "1")
    assert build_environment({**outer, "PATH": "/bin", "CLAUDE_CONFIG_DIR": "/c"}, ENV_POLICY) == {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": "/bin",
        "CLAUDE_CONFIG_DIR": "/c",
    }


def test_user_settings_override_the_defaults() -> None:
    inherited = {
        "DISABLE_AUTOUPDATER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "",
        "A": "1",
    }
    assert build_environment(inherited, ENV_POLICY, extra={"A": "2"}) == {**inherited, "A": "2"}


def test_api_keys_can_be_removed() -> None:
    """The token of a subscription is always passed on."""
    keys = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "CLAUDE_CODE_OAUTH_TOKEN": "o"}
    assert keys.items() <= build_environment(keys, ENV_POLICY).items()
    assert build_environment(keys, ENV_POLICY, include_api_keys=False) == {
        **dict(ENV_POLICY.defaults),
        "CLAUDE_CODE_OAUTH_TOKEN": "o",
    }
