"""Kinds of values that people give, as text or as TOML has them. Each is checked here, or refused with what was expected. Pure.

A kind is a function from what was given to the value; it raises ValueError with the words that follow "expected".
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from ..report import VERDICTS

ValueParser = Callable[[Any], Any]

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_COUNT_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACKEND = re.compile(
    r"ollama|(?:ollama|openai|anthropic):https?://(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?"
)
_OFF_WORDS = ("off", "never", "none")
_BOOL_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse_text(given: Any) -> str:
    """Any words at all."""
    if not isinstance(given, str) or not given.strip():
        raise ValueError("a text that is not empty")
    return given


def parse_count(given: Any) -> int:
    """A whole number above 0; large ones may be written 200k or 1.5M."""
    expected = ValueError("a whole number above 0, such as 20 or 200k")
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise expected
    words = str(given).strip().lower().replace("_", "")
    unit = _COUNT_SUFFIXES.get(words[-1:], 1)
    value = _parse_number(words[:-1] if unit > 1 else words, expected) * unit
    if value < 1 or value != int(value):
        raise expected
    return int(value)


def parse_dollars(given: Any) -> float:
    """An amount above 0."""
    expected = ValueError("an amount of dollars above 0, such as 5 or 0.50")
    value = _parse_number(
        given.strip().removeprefix("$") if isinstance(given, str) else given, expected
    )
    if value <= 0:
        raise expected
    return value


def parse_duration(given: Any) -> float | None:
    """A time above 0, in seconds or as 90s, 10m, 1h30m; None for `off`."""
    expected = ValueError("a time above 0, such as 90 (seconds), 10m or 1h30m, or off")
    if given is False or (isinstance(given, str) and given.strip().lower() in _OFF_WORDS):
        return None
    words = given.strip().lower() if isinstance(given, str) else given
    if isinstance(words, str) and _DURATION_PART.sub("", words) == "" and words:
        value = sum(
            float(number) * _SECONDS_PER_UNIT[unit]
            for number, unit in _DURATION_PART.findall(words)
        )
    else:
        value = _parse_number(words, expected)
    if value <= 0:
        raise expected
    return value


def parse_fraction(given: Any) -> float:
    """A part of a whole: 0.8 or 80%."""
    expected = ValueError("a part between 0 and 1, such as 0.8 or 80%")
    percent = isinstance(given, str) and given.strip().endswith("%")
    value = (
        _parse_number(given.strip()[:-1], expected) / 100
        if percent
        else _parse_number(given, expected)
    )
    if not 0 < value <= 1:
        raise expected
    return value


def _parse_number(given: Any, expected: ValueError) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise expected
    try:
        value = float(given)
    except (ValueError, OverflowError):
        raise expected from None
    if not math.isfinite(value):
        raise expected
    return value


def parse_bool(given: Any) -> bool:
    """Yes or no."""
    if isinstance(given, bool):
        return given
    found = _BOOL_WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    if found is None:
        raise ValueError("true or false")
    return found


def parse_words(given: Any) -> tuple[str, ...]:
    """Words, as a list or with commas between them. A comma within brackets parts nothing: `Bash(a, b), Read` is two."""
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of words")
    found = [word.strip() for part in parts for word in _split_on_commas(part)]
    return tuple(word for word in found if word)


def _split_on_commas(given: str) -> list[str]:
    found, depth = [""], 0
    for letter in given:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def parse_paths(given: Any) -> tuple[str, ...]:
    """Paths, each as it is: one, or a list of them."""
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(
        isinstance(part, str) and part for part in parts
    ):
        raise ValueError("a path, or a list of paths")
    return tuple(parts)


def parse_backend(given: Any) -> str:
    """A model server: `ollama`, or one of three kinds with its address. What is secret does not belong into an address."""
    expected = ValueError(
        "ollama, ollama:URL, openai:URL or anthropic:URL with an address such as http://127.0.0.1:8000/v1, "
        "without a user, a password or a query; a key goes into STENO_BACKEND_KEY"
    )
    if not isinstance(given, str) or not _BACKEND.fullmatch(given.strip()):
        raise expected
    return given.strip()


def parse_json_schema(given: Any) -> str:
    """A JSON schema: the path of its file, or the schema itself as JSON or as a table."""
    if isinstance(given, Mapping):
        import json

        try:
            return json.dumps(given)
        except (TypeError, ValueError):
            raise ValueError("a JSON schema") from None
    return parse_text(given)


def parse_env(given: Any) -> dict[str, str]:
    """Names with their values: a table, or a list of NAME=VALUE."""
    expected = ValueError("NAME=VALUE with a name of letters, digits and underscores")
    if isinstance(given, Mapping):
        found = dict(given)
    else:
        parts = [given] if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or not all(
            isinstance(part, str) and "=" in part for part in parts
        ):
            raise expected
        found = dict(part.split("=", 1) for part in parts)
    if not all(
        isinstance(name, str) and _ENV_NAME.fullmatch(name) and isinstance(value, str)
        for name, value in found.items()
    ):
        raise expected
    return found


def one_of(*choices: str) -> ValueParser:
    """One of these words."""

    def choice(given: Any) -> str:
        if given not in choices:
            raise ValueError(", ".join(choices[:-1]) + f" or {choices[-1]}")
        return str(given)

    return choice


def subset_of(*choices: str) -> ValueParser:
    """Some of these words, or `none`."""

    def choice(given: Any) -> tuple[str, ...]:
        found = parse_words(given)
        wrong = [word for word in found if word not in choices and word != "none"]
        if wrong or not found:
            raise ValueError(f"words among {', '.join(choices)}; or none")
        return tuple(word for word in found if word != "none")

    return choice


NON_RETRYABLE_VERDICTS = (
    "success",
    "auth",
    "not_found",
    "interrupted",
    "killed",
)  # nothing is gained by another attempt
DEFAULT_RETRY_VERDICTS = (
    "max_turns",
    "rate_limit",
    "api",
    "network",
    "stalled",
    "no_result",
    "context_full",
)


class Setting(Struct, frozen=True):
    """One setting. `metavar` is empty for a switch; `many`: its option may be given several times."""

    name: str
    parse: ValueParser
    metavar: str
    help_text: str
    default: Any = None
    group: str = "the agent"
    is_repeatable: bool = False
    is_per_agent: bool = False  # in a file it belongs to an agent: [agents.NAME]
    is_file_setting: bool = True  # it may stand in a file
    choices: tuple[str, ...] = ()  # all that it may be, where those are a few words

    @property
    def option(self) -> str:
        """As an option of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """As a variable of the environment. One variable cannot hold several others."""
        return None if self.parse is parse_env else f"STENO_{self.name.upper()}"


_RETRYABLE_VERDICTS = tuple(word for word in VERDICTS if word not in NON_RETRYABLE_VERDICTS)
_ON_LIMIT_CHOICES, _EXIT_FROM_CHOICES, _CHANGES_CHOICES = (
    ("wait", "fail", "fallback"),
    ("verdict", "agent"),
    ("none", "git", "all"),
)
_CHANGES_HELP = "besides what tools tell, see changed files by: git (before and after), all (the file system too), none"
_LEDGER_HELP = (
    "the ledger: a path or postgresql://... (default: a file in the user's data directory)"
)
_FALLBACK_MODEL_HELP = "the model for `--on-limit fallback`, and for the agent's own use"
_BACKEND_HELP = "a model server in place of its maker's: ollama[:URL], openai:URL or anthropic:URL; with --model"
_FALLBACK_AGENT_HELP = "the agent that goes on where this one is not there, not signed in, out of credit, or limited with `--on-limit fallback`"
_TIME_GROUP, _BUDGET_GROUP, _RETRY_GROUP, _STENO_GROUP = (
    "clocks",
    "what it may spend",
    "what comes after an attempt",
    "steno itself",
)
SETTINGS = (
    Setting("agent", parse_text, "NAME", "the agent", "claude"),
    Setting("program", parse_text, "PATH", "its program, where that is not simply its name in PATH", is_per_agent=True),
    Setting("model", parse_text, "NAME", "its model: small, medium or large, or a name that it knows"),
    Setting("backend", parse_backend, "WHERE", _BACKEND_HELP),
    Setting("max_turns", parse_count, "N", "turns at most"),
    Setting("permission_mode", parse_text, "MODE", "what it may do unasked, in its own words"),
    Setting("allow", parse_words, "TOOL", "a tool, or a rule, that needs no permission", (), is_repeatable=True),
    Setting("deny", parse_words, "TOOL", "a tool, or a rule, that is refused", (), is_repeatable=True),
    Setting("system_prompt", parse_text, "TEXT", "added to its own system prompt"),
    Setting("add_dir", parse_paths, "DIR", "another folder that it may work in", (), is_repeatable=True),
    Setting("mcp_config", parse_paths, "FILE", "MCP servers: a file, or JSON", (), is_repeatable=True),
    Setting("json_schema", parse_json_schema, "FILE", "the shape of its answer: a JSON schema in a file, or as it is"),
    Setting("env", parse_env, "K=V", "a variable for its environment", {}, is_repeatable=True),
    Setting("no_api_key", parse_bool, "", "withhold API keys: use its own sign-in", False),
    Setting("steer", parse_bool, "", "take messages while it runs, from `steno send`", False),
    Setting("timeout", parse_duration, "TIME", "an attempt may take so long", None, _TIME_GROUP),
    Setting("first_output", parse_duration, "TIME", "its first output must come within", 180.0, _TIME_GROUP),
    Setting("silence", parse_duration, "TIME", "it may be silent for", 360.0, _TIME_GROUP),
    Setting("tool_silence", parse_duration, "TIME", "the same while a tool runs", 3600.0, _TIME_GROUP),
    Setting("after_result", parse_duration, "TIME", "it may live on after its result", 30.0, _TIME_GROUP),
    Setting("background", parse_duration, "TIME", "the same while work of its own goes on in the background", 600.0, _TIME_GROUP),
    Setting("max_cost", parse_dollars, "USD", "all attempts together may cost", None, _BUDGET_GROUP),
    Setting("max_tokens", parse_count, "N", "all attempts together may use", None, _BUDGET_GROUP),
    Setting("warn_at", parse_fraction, "PART", "say so when this part of it is spent", 0.8, _BUDGET_GROUP),
    Setting("attempts", parse_count, "N", "attempts at most; waits for a limit and handovers are not counted", 3, _RETRY_GROUP),
    Setting(
        "resume_on", subset_of(*_RETRYABLE_VERDICTS), "WORD", "verdicts that are followed by another", DEFAULT_RETRY_VERDICTS, _RETRY_GROUP, is_repeatable=True,
        choices=(*_RETRYABLE_VERDICTS, "none"),
    ),
    Setting(
        "on_limit", one_of(*_ON_LIMIT_CHOICES), "WHAT", "at a usage limit: wait, fail or fallback", "wait", _RETRY_GROUP, choices=_ON_LIMIT_CHOICES,
    ),
    Setting("fallback_model", parse_text, "NAME", _FALLBACK_MODEL_HELP, None, _RETRY_GROUP),
    Setting("fallback_agent", parse_words, "NAME", _FALLBACK_AGENT_HELP, (), _RETRY_GROUP, is_repeatable=True),
    Setting("refresh_at", parse_fraction, "PART", "a context this full goes on in a new session, with a summary", 0.8, _RETRY_GROUP),
    Setting(
        "exit_from", one_of(*_EXIT_FROM_CHOICES), "WHOM", "the exit code: the verdict's, or the agent's own", "verdict", _STENO_GROUP,
        choices=_EXIT_FROM_CHOICES,
    ),
    Setting("no_advice", parse_bool, "", "judge without `interactive` and `background_task`", False, _STENO_GROUP),
    Setting("changes", one_of(*_CHANGES_CHOICES), "HOW", _CHANGES_HELP, "git", _STENO_GROUP, choices=_CHANGES_CHOICES),
    Setting("feed", parse_bool, "", "on stderr, a line for each thing that happens", False, _STENO_GROUP),
    Setting("quiet", parse_bool, "", "on stderr, only what is wrong", False, _STENO_GROUP),
    Setting("ledger", parse_text, "URL", _LEDGER_HELP, None, _STENO_GROUP, is_file_setting=False),  # one for all commands
)  # fmt: skip
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
