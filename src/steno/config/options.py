"""All settings, with their parsers, defaults and help texts.

A parser converts text or a TOML value; its ValueError completes the sentence "expected ...".
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from typing import Any

from msgspec import Struct

from ..report import VERDICTS

ValueParser = Callable[[Any], Any]

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_COUNT_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACKEND = re.compile(
    r"ollama|(?:ollama|openai|anthropic):https?://"
    r"(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?"
)
_OFF_WORDS = ("off", "never", "none")
_BOOL_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("non-empty text")
    return value


def parse_count(value: Any) -> int:
    """Parse a whole number above 0; large ones may be written 200k or 1.5M."""
    expected = ValueError("a whole number above 0, such as 20 or 200k")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise expected
    text = str(value).strip().lower().replace("_", "")
    factor = _COUNT_SUFFIXES.get(text[-1:], 1)
    count = _parse_number(text[:-1] if factor > 1 else text, expected) * factor
    if count < 1 or count != int(count):
        raise expected
    return int(count)


def parse_limit(value: Any) -> int:
    """Parse a whole number; 0 for `off`."""
    expected = ValueError("a whole number, such as 30, or off")
    text = value.strip().lower() if isinstance(value, str) else value
    if value is False or text in _OFF_WORDS:
        return 0
    number = _parse_number(text, expected)
    if number < 0 or number != int(number):
        raise expected
    return int(number)


def parse_turns(value: Any) -> int | str:
    """Parse a number of turns, or a range such as 10..30."""
    expected = ValueError("a whole number above 0, such as 20, or a range such as 10..30")
    first, separator, total = str(value).partition("..")
    try:
        if not separator:
            return parse_count(value)
        limits = (parse_count(first), parse_count(total))
    except ValueError:
        raise expected from None
    if limits[0] > limits[1]:
        raise expected
    return f"{limits[0]}..{limits[1]}"


def turn_limits(value: int | str | None) -> tuple[int | None, int | None]:
    """The limits of the first attempt and of the whole task, from a parsed number or range."""
    if value is None:
        return None, None
    first, _, total = str(value).partition("..")
    return int(first), int(total or first)


def parse_dollars(value: Any) -> float:
    expected = ValueError("an amount in dollars above 0, such as 5 or 0.50")
    number = value.strip().removeprefix("$") if isinstance(value, str) else value
    amount = _parse_number(number, expected)
    if amount <= 0:
        raise expected
    return amount


def parse_duration(value: Any) -> float | None:
    """Parse seconds, or a text such as 90s, 10m or 1h30m; None for `off`."""
    expected = ValueError("a duration above 0, such as 90 (seconds), 10m or 1h30m, or off")
    text = value.strip().lower() if isinstance(value, str) else value
    if value is False or text in _OFF_WORDS:
        return None
    if isinstance(text, str) and text and _DURATION_PART.sub("", text) == "":
        seconds = sum(
            float(number) * _SECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(text)
        )
    else:
        seconds = _parse_number(text, expected)
    if seconds <= 0:
        raise expected
    return seconds


def parse_deadline(value: Any) -> float | str | None:
    """Parse a duration in seconds, or a time of day or date and time; None for `off`."""
    text = value.isoformat() if isinstance(value, datetime | time) else value
    try:
        return parse_duration(text)
    except ValueError:
        pass
    text = text.strip() if isinstance(text, str) else ""
    try:
        deadline_at(text, 0.0)
    except (ValueError, OverflowError):
        raise ValueError(
            "a duration such as 20m or 2h, a time such as 18:30 or 2030-01-31T18:30, or off"
        ) from None
    return text


def deadline_at(value: float | str, now: float) -> float:
    """The time of a parsed deadline, in seconds since 1970. A time of day is the next such time."""
    if not isinstance(value, str):
        return now + value
    if _CLOCK_TIME.fullmatch(value) is None:
        if ":" not in value:
            raise ValueError(value)
        return datetime.fromisoformat(value).timestamp()
    here = datetime.fromtimestamp(now)  # local time
    hour, minute, second = (int(part) for part in f"{value}:0".split(":")[:3])
    at = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
    return (at if at > here else at + timedelta(days=1)).timestamp()


def parse_fraction(value: Any) -> float:
    """Parse a fraction: 0.8 or 80%."""
    expected = ValueError("a fraction between 0 and 1, such as 0.8 or 80%")
    text = value.strip() if isinstance(value, str) else ""
    is_percent = text.endswith("%")
    number = _parse_number(text[:-1] if is_percent else value, expected)
    fraction = number / 100 if is_percent else number
    if not 0 < fraction <= 1:
        raise expected
    return fraction


def parse_fractions(value: Any) -> tuple[float, ...]:
    """Parse fractions: 0.7,0.8 or 70%,80%, or a list; empty for `off`."""
    expected = ValueError("fractions between 0 and 1, such as 0.7,0.8,0.95 or 70%,80%, or off")
    parts = value if isinstance(value, list | tuple) else [value]
    words = [
        word
        for part in parts
        for word in (part.split(",") if isinstance(part, str) else [part])
        if not isinstance(word, str) or word.strip()
    ]
    only = words[0] if len(words) == 1 else None
    if value is False or (isinstance(only, str) and only.strip().lower() in _OFF_WORDS):
        return ()
    try:
        fractions = sorted({parse_fraction(word) for word in words})
    except ValueError:
        raise expected from None
    if not fractions:
        raise expected
    return tuple(fractions)


def _parse_number(value: Any, expected: ValueError) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise expected
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise expected from None
    if not math.isfinite(number):
        raise expected
    return number


def parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    flag = _BOOL_WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    if flag is None:
        raise ValueError("true or false")
    return flag


def parse_words(value: Any) -> tuple[str, ...]:
    """Parse a list, or text with commas; `Bash(a, b), Read` has two words."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of words")
    words = [word.strip() for part in parts for word in _split_on_commas(part)]
    return tuple(word for word in words if word)


def _split_on_commas(text: str) -> list[str]:
    words = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += char
    return words


def parse_paths(value: Any) -> tuple[str, ...]:
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not all(
        isinstance(path, str) and path for path in paths
    ):
        raise ValueError("a path, or a list of paths")
    return tuple(paths)


def parse_backend(value: Any) -> str:
    """Parse `ollama` or KIND:URL. Credentials in the URL are rejected."""
    expected = ValueError(
        "ollama, ollama:URL, openai:URL or anthropic:URL, with a URL such as "
        "http://127.0.0.1:8000/v1 without user, password or query; "
        "set STENO_BACKEND_KEY for an API key"
    )
    if not isinstance(value, str) or not _BACKEND.fullmatch(value.strip()):
        raise expected
    return value.strip()


def parse_json_schema(value: Any) -> str:
    """Parse the path of a schema file, or a schema as JSON text or TOML table."""
    if isinstance(value, Mapping):
        import json

        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            raise ValueError("a JSON schema") from None
    return parse_text(value)


def parse_env(value: Any) -> dict[str, str]:
    """Parse a table, or NAME=VALUE items."""
    expected = ValueError("NAME=VALUE, with a name of letters, digits and underscores")
    if isinstance(value, Mapping):
        variables = dict(value)
    else:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(
            isinstance(item, str) and "=" in item for item in items
        ):
            raise expected
        variables = dict(item.split("=", 1) for item in items)
    if not all(
        isinstance(name, str) and _ENV_NAME.fullmatch(name) and isinstance(text, str)
        for name, text in variables.items()
    ):
        raise expected
    return variables


def one_of(*choices: str) -> ValueParser:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(", ".join(choices[:-1]) + f" or {choices[-1]}")
        return str(value)

    return parse


def subset_of(*choices: str) -> ValueParser:
    """Parse some of the choices, or `none`."""

    def parse(value: Any) -> tuple[str, ...]:
        words = parse_words(value)
        unknown = [word for word in words if word not in choices and word != "none"]
        if unknown or not words:
            raise ValueError(f"one or more of {', '.join(choices)}; or none")
        return tuple(word for word in words if word != "none")

    return parse


# Verdicts after which a retry can't help.
NON_RETRYABLE_VERDICTS = ("success", "auth", "billing", "not_found", "interrupted", "killed")
DEFAULT_RETRY_VERDICTS = (
    "rate_limit",
    "api",
    "network",
    "stalled",
    "no_result",
    "context_full",
)


class Setting(Struct, frozen=True):
    """One setting; a switch has an empty `metavar`."""

    name: str
    parse: ValueParser
    metavar: str
    help_text: str
    default: Any = None
    group: str = "agent"
    is_repeatable: bool = False
    is_per_agent: bool = False  # in a file, only below [agents.NAME]
    is_file_setting: bool = True  # allowed in a file
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """The environment variable; none for `env`, which is a set of variables."""
        return None if self.parse is parse_env else f"STENO_{self.name.upper()}"


_RETRYABLE_VERDICTS = tuple(word for word in VERDICTS if word not in NON_RETRYABLE_VERDICTS)
_ON_LIMIT_CHOICES = ("wait", "fail", "fallback")
_EXIT_FROM_CHOICES = ("verdict", "agent")
_CHANGES_CHOICES = ("none", "git", "all")
_TIME_GROUP = "timeouts"
_BUDGET_GROUP = "budget"
_RETRY_GROUP = "retries"
_STENO_GROUP = "steno"

_AGENT_SETTINGS = (
    Setting("agent", parse_text, "NAME", "agent to run", "claude"),
    Setting(
        "program",
        parse_text,
        "PATH",
        "path of the agent's program (default: its name in PATH)",
        is_per_agent=True,
    ),
    Setting("model", parse_text, "NAME", "model: small, medium, large, or a name the agent knows"),
    Setting(
        "backend",
        parse_backend,
        "BACKEND",
        "model server to use instead of the vendor's: ollama[:URL], openai:URL or anthropic:URL; "
        "requires --model",
    ),
    Setting(
        "max_turns",
        parse_turns,
        "N",
        "maximum turns of all attempts; N..M starts with N and doubles by resuming, up to M in "
        "total",
    ),
    Setting(
        "permission_mode",
        parse_text,
        "MODE",
        "permission mode: default, plan, acceptEdits, dontAsk, bypassPermissions, or "
        "one of the agent's own",
    ),
    Setting(
        "allow",
        parse_words,
        "TOOL",
        "tool or rule to allow, such as Edit or 'Bash(make test)' (repeatable)",
        (),
        is_repeatable=True,
    ),
    Setting(
        "deny", parse_words, "TOOL", "tool or rule to deny (repeatable)", (), is_repeatable=True
    ),
    Setting("system_prompt", parse_text, "TEXT", "text to append to the system prompt"),
    Setting(
        "add_dir",
        parse_paths,
        "DIR",
        "additional folder the agent may work in",
        (),
        is_repeatable=True,
    ),
    Setting(
        "mcp_config", parse_paths, "FILE", "MCP servers: a file or JSON", (), is_repeatable=True
    ),
    Setting("json_schema", parse_json_schema, "FILE", "JSON schema of the answer: a file or JSON"),
    Setting("env", parse_env, "K=V", "environment variable for the agent", {}, is_repeatable=True),
    Setting(
        "no_api_key",
        parse_bool,
        "",
        "remove API keys from the environment; use the agent's own sign-in",
        False,
    ),
    Setting("steer", parse_bool, "", "accept messages from `steno send` during the run", False),
)
_TIME_SETTINGS = (
    Setting(
        "deadline",
        parse_deadline,
        "TIME",
        "time limit for the whole task with all waits: a duration, or a time such as 18:30",
        None,
        _TIME_GROUP,
    ),
    Setting("timeout", parse_duration, "TIME", "time limit per attempt", None, _TIME_GROUP),
    Setting(
        "first_output",
        parse_duration,
        "TIME",
        "time limit for the first output",
        180.0,
        _TIME_GROUP,
    ),
    Setting("silence", parse_duration, "TIME", "time limit without output", 360.0, _TIME_GROUP),
    Setting(
        "tool_silence",
        parse_duration,
        "TIME",
        "time limit without output while a tool runs",
        3600.0,
        _TIME_GROUP,
    ),
    Setting(
        "after_result",
        parse_duration,
        "TIME",
        "time limit to exit after the result if no background work is running",
        30.0,
        _TIME_GROUP,
    ),
    Setting(
        "background",
        parse_duration,
        "TIME",
        "time limit to exit after the result while background work is running",
        600.0,
        _TIME_GROUP,
    ),
)
_BUDGET_SETTINGS = (
    Setting("max_cost", parse_dollars, "USD", "maximum cost of all attempts", None, _BUDGET_GROUP),
    Setting("max_tokens", parse_count, "N", "maximum tokens of all attempts", None, _BUDGET_GROUP),
    Setting(
        "warn_at",
        parse_fraction,
        "FRACTION",
        "warn when this fraction of --max-cost or --max-tokens is used",
        0.8,
        _BUDGET_GROUP,
    ),
    Setting(
        "alert_at",
        parse_fractions,
        "FRACTIONS",
        "alert when these fractions of the context are used, or off",
        (0.7, 0.8, 0.95),
        _BUDGET_GROUP,
    ),
)
_RETRY_SETTINGS = (
    Setting(
        "attempts",
        parse_count,
        "N",
        "maximum number of attempts; waits for a rate limit, new sessions of --refresh-at and the "
        "steps of --max-turns N..M don't count",
        3,
        _RETRY_GROUP,
    ),
    Setting(
        "resume_on",
        subset_of(*_RETRYABLE_VERDICTS),
        "VERDICT",
        "verdicts that trigger a retry",
        DEFAULT_RETRY_VERDICTS,
        _RETRY_GROUP,
        is_repeatable=True,
        choices=(*_RETRYABLE_VERDICTS, "none"),
    ),
    Setting(
        "on_limit",
        one_of(*_ON_LIMIT_CHOICES),
        "ACTION",
        "action when rate limited: wait, fail or fallback",
        "wait",
        _RETRY_GROUP,
        choices=_ON_LIMIT_CHOICES,
    ),
    Setting(
        "max_wait",
        parse_duration,
        "TIME",
        "maximum time to wait for rate limits, in total",
        1800.0,
        _RETRY_GROUP,
    ),
    Setting(
        "fallback_model",
        parse_text,
        "NAME",
        "model to use when rate limited (--on-limit fallback); also passed to agents with such an "
        "option",
        None,
        _RETRY_GROUP,
    ),
    Setting(
        "fallback_agent",
        parse_words,
        "NAME",
        "agent to continue with if this one is not installed, not signed in, out of credit, "
        "or limited with `--on-limit fallback`",
        (),
        _RETRY_GROUP,
        is_repeatable=True,
    ),
    Setting(
        "refresh_at",
        parse_fraction,
        "FRACTION",
        "fraction of the context window at which to continue in a new session, with a summary",
        0.8,
        _RETRY_GROUP,
    ),
)
_STENO_SETTINGS = (
    Setting(
        "exit_from",
        one_of(*_EXIT_FROM_CHOICES),
        "SOURCE",
        "source of the exit code: verdict, or agent (the agent's own code)",
        "verdict",
        _STENO_GROUP,
        choices=_EXIT_FROM_CHOICES,
    ),
    Setting(
        "no_advice",
        parse_bool,
        "",
        "disable the heuristics for open questions and background work",
        False,
        _STENO_GROUP,
    ),
    Setting(
        "changes",
        one_of(*_CHANGES_CHOICES),
        "METHOD",
        "detection of file changes that tools don't report: git (compare before and "
        "after the run), all (git, and watch the file system), none",
        "git",
        _STENO_GROUP,
        choices=_CHANGES_CHOICES,
    ),
    Setting(
        "undo_days",
        parse_limit,
        "DAYS",
        "keep the git snapshots that undo a run (refs/steno) for this long, or off",
        30,
        _STENO_GROUP,
    ),
    Setting(
        "undo_runs",
        parse_limit,
        "N",
        "keep the git snapshots of this many runs per repository, or off",
        100,
        _STENO_GROUP,
    ),
    Setting("feed", parse_bool, "", "log every event to stderr", False, _STENO_GROUP),
    Setting("quiet", parse_bool, "", "print only errors and warnings", False, _STENO_GROUP),
    Setting(
        "ledger",
        parse_text,
        "URL",
        "ledger: a path or postgresql://... (default: a file in the user's data directory)",
        None,
        _STENO_GROUP,
        is_file_setting=False,  # all commands must use the same one
    ),
)
SETTINGS = (
    *_AGENT_SETTINGS,
    *_TIME_SETTINGS,
    *_BUDGET_SETTINGS,
    *_RETRY_SETTINGS,
    *_STENO_SETTINGS,
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
