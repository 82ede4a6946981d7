"""Secrets are redacted by format and by the name before them; prose is unchanged (L5)."""

import pytest

from steno.codec.redact import MASK, redact, redact_and_truncate, redact_argv, redact_truncated

SHAPES = [
    "sk-ant-api03-abcDEF123_456-xyz789",
    "sk-proj-Ab12Cd34Ef56Gh78",
    "sk-abcdefgh12345678",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "gho_abcdefghijklmnopqrstuvwxyz0123456789",
    "ghs_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "xoxp-123456789012-abcdefghijkl",
]


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize(
    "around",
    ["{}", "key {} here", '"{}"', "({})", "x={}&y=1", "https://u:{}@host/", "a\n{}\nb", "'{}',"],
)
def test_l5_a_secret_is_detected_by_its_format(secret: str, around: str) -> None:
    found = redact(around.format(secret))
    assert secret not in found
    assert found == around.format(MASK)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Authorization: Bearer abc.def-123_456", f"Authorization: Bearer {MASK}"),
        ("authorization: bearer abcdef123456", f"authorization: bearer {MASK}"),
        (
            "curl -H 'Authorization: Bearer eyJhbGciOi.eyJzdWIi.c2ln' x",
            f"curl -H 'Authorization: Bearer {MASK}' x",
        ),
    ],
)
def test_l5_a_bearer_token(given: str, expected: str) -> None:
    assert redact(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ANTHROPIC_API_KEY=hunter2hunter2", f"ANTHROPIC_API_KEY={MASK}"),
        ("export GITHUB_TOKEN='hunter2'", f"export GITHUB_TOKEN='{MASK}'"),
        ('{"api_key": "hunter2", "n": 1}', f'{{"api_key": "{MASK}", "n": 1}}'),
        ('{"apiKey":"hunter2"}', f'{{"apiKey":"{MASK}"}}'),
        ("x-api-key: hunter2", f"x-api-key: {MASK}"),
        ("password=hunter2 user=me", f"password={MASK} user=me"),
        ("PASSWD=hunter2;", f"PASSWD={MASK};"),
        ("client_secret: hunter2", f"client_secret: {MASK}"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", f"AWS_SECRET_ACCESS_KEY={MASK}"),
        ("https://host/?access_token=hunter2&page=2", f"https://host/?access_token={MASK}&page=2"),
    ],
)
def test_l5_a_secret_is_detected_by_its_name(given: str, expected: str) -> None:
    assert redact(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "Authorization: Basic dXNlcjpodW50ZXIy",
        "Authorization: token dXNlcjpodW50ZXIy",
        'password="dXNlcjpodW50ZXIy and more"',
        r"{\"api_key\": \"dXNlcjpodW50ZXIy\"}",
    ],
)
def test_l5_a_named_secret_is_found_in_its_usual_wrappings(given: str) -> None:
    assert "dXNlcjpodW50ZXIy" not in redact(given)


def test_l5_the_words_after_a_quoted_secret_are_a_part_of_it() -> None:
    assert "and more" not in redact('password="hunter2 and more"')


PROSE = [
    "",
    "The sk-learn package and a task-force of sk-8 people.",
    "Bearer of bad news",
    "the bearer is here",
    "I counted the tokens and the keys; the secret is patience.",
    "Set your API key first, then the password.",
    "AKIA is a prefix, and so is ghp_.",
    "xoxo, your author",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "session 550e8400-e29b-41d4-a716-446655440001 used toolu_01HgD157dhSct5BJqj6p75ua",
    "msg_01KG2kL94VWFMh6mn39mbonY and req_011CFakeFakeFake",
    "git@github.com:a/b.git and https://example.org/path?q=1#top",
    "naïve — “quoted” ✓ \u2028",
]

FIGURES = [
    '{"input_tokens": 512, "output_tokens":101}',
    "max_tokens=4096",
    "output tokens: 101",
    '"cacheReadInputTokens":20000',
    '"apiKeySource":"ANTHROPIC_API_KEY"',
]


@pytest.mark.parametrize("words", PROSE)
def test_l5_prose_is_left_alone(words: str) -> None:
    assert redact(words) == words


@pytest.mark.parametrize("words", FIGURES)
def test_l5_counts_of_tokens_and_labels_are_no_secrets(words: str) -> None:
    assert redact(words) == words


def test_l5_redacting_twice_changes_nothing_more() -> None:
    once = redact(f"a {SHAPES[0]} Bearer abcdef123456 token=hunter2")
    assert redact(once) == once


def test_r2_a_command_line_loses_its_secrets_and_nothing_else() -> None:
    argv = [
        "claude",
        "-p",
        "fix it",
        "--api-key",
        "hunter2",
        "--token=hunter2",
        SHAPES[0],
        "--model",
        "opus",
        "--verbose",
    ]
    assert redact_argv(argv) == [
        "claude",
        "-p",
        "fix it",
        "--api-key",
        MASK,
        f"--token={MASK}",
        MASK,
        "--model",
        "opus",
        "--verbose",
    ]


def test_r2_a_header_option_is_redacted_too() -> None:
    argv = ["curl", "-H", "Authorization: Bearer abcdef123456", "--header", "x-api-key: hunter2"]
    assert redact_argv(argv) == [
        "curl",
        "-H",
        f"Authorization: Bearer {MASK}",
        "--header",
        f"x-api-key: {MASK}",
    ]


def test_r2_a_secret_that_opens_with_a_dash_is_still_one() -> None:
    assert redact_argv(["--api-key", "-hunter2-hunter2"]) == ["--api-key", MASK]


def test_r2_an_option_after_a_secret_option_is_kept() -> None:
    assert redact_argv(["--api-key", "--verbose"]) == ["--api-key", "--verbose"]


@pytest.mark.parametrize(
    "secret",
    [
        *SHAPES,
        "Bearer abcdef.ghijkl",
        'password="two words of it"',
        'api_key=\'it is "long" ' + "x" * 900 + "'",
    ],
)
@pytest.mark.parametrize("most", [300, 500])
def test_l5_a_secret_across_a_cut_leaves_nothing_behind(secret: str, most: int) -> None:
    """A secret at any position relative to the cut; the text before it is unchanged."""
    value = secret.split(" ", 1)[-1].split("=", 1)[-1].strip("\"'")
    for begin in range(most - len(secret) - 5, most + 2):
        found = redact_and_truncate(
            "." * max(0, begin - 1) + " " + secret + " and more words" * 100, most
        )
        assert len(found) <= most
        assert found.startswith("." * min(max(0, begin - 1), most))
        assert value[:6] not in found


@pytest.mark.parametrize("secret", SHAPES)
def test_l5_masks_that_shorten_a_text_bring_no_cut_secret_before_the_cut(secret: str) -> None:
    """Long keys become short masks; the searched text ends within the last key."""
    long = "sk-" + "k" * 250
    for more in range(60):
        text = f"{long} {'.' * (240 - more)} {secret}" + " words" * 200
        assert secret[:6] not in redact_and_truncate(text, 300)


def test_l5_a_text_that_fits_is_only_masked() -> None:
    """Nothing is cut from it."""
    assert redact_and_truncate("use sk-abcdefgh12345678 now", 300) == f"use {MASK} now"
    assert redact_and_truncate("x" * 300, 300) == "x" * 300
    assert redact_and_truncate("x" * 301, 300) == "x" * 300


@pytest.mark.parametrize("secret", SHAPES)
def test_l5_a_text_that_was_cut_by_others_ends_before_what_may_be_a_secret(secret: str) -> None:
    """All of it may have been cut off but its first letters."""
    for kept in range(4, len(secret)):
        assert secret[:4] not in redact_truncated("words " * 20 + secret[:kept])


def test_l5_names_in_objects_are_masked_too() -> None:
    """A report counts by the name of the tool."""
    from steno.codec.redact import redact_value

    assert redact_value({"tools": {"sk-abcdefgh12345678": 1, "Bash": 2}}) == {
        "tools": {MASK: 1, "Bash": 2}
    }
