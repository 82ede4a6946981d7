"""R2: the environment that an agent is started in."""

from steno.environment import CLAUDE, surround


def test_a_run_from_within_a_run_knows_nothing_of_it() -> None:
    """The marker of the outer session and all that ties to it are gone; what is not the agent's stays."""
    outer = dict.fromkeys(CLAUDE.drop, "1")
    assert surround({**outer, "PATH": "/bin", "CLAUDE_CONFIG_DIR": "/c"}, CLAUDE) == {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": "/bin",
        "CLAUDE_CONFIG_DIR": "/c",
    }


def test_what_a_person_set_stands() -> None:
    """No setting of ours overrules one of theirs, and theirs for this run overrules all."""
    mine = {"DISABLE_AUTOUPDATER": "0", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "", "A": "1"}
    assert surround(mine, CLAUDE, more={"A": "2"}) == {**mine, "A": "2"}


def test_keys_can_be_withheld() -> None:
    """A key is passed on, or not; a subscription's sign-in always is."""
    keys = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "CLAUDE_CODE_OAUTH_TOKEN": "o"}
    assert keys.items() <= surround(keys, CLAUDE).items()
    assert surround(keys, CLAUDE, keys=False) == {**dict(CLAUDE.put), "CLAUDE_CODE_OAUTH_TOKEN": "o"}
