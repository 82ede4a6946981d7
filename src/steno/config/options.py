"""All settings, with their parsers, defaults and help texts."""

from typing import Any

from msgspec import Struct

from ..report import VERDICTS
from .values import (
    ValueParser,
    one_of,
    parse_backend,
    parse_bool,
    parse_count,
    parse_deadline,
    parse_dollars,
    parse_duration,
    parse_env,
    parse_fraction,
    parse_fractions,
    parse_json_schema,
    parse_label,
    parse_limit,
    parse_otel,
    parse_paths,
    parse_services,
    parse_tags,
    parse_text,
    parse_turns,
    parse_words,
    subset_of,
)

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
    flag: str = ""  # the option, where the name does not say it
    former_name: str = ""  # still accepted in files and variables

    @property
    def option(self) -> str:
        return self.flag or "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """The environment variable; none for `env`, which is a set of variables."""
        return None if self.parse is parse_env else f"STENO_{self.name.upper()}"


_RETRYABLE_VERDICTS = tuple(word for word in VERDICTS if word not in NON_RETRYABLE_VERDICTS)
_ON_LIMIT_CHOICES = ("wait", "fail", "fallback")
_EXIT_FROM_CHOICES = ("verdict", "agent")
_CHANGES_CHOICES = ("none", "git", "all")
_TIME_GROUP = "timeouts (seconds, or text such as 10m or 1h30m; off: no limit)"
_BUDGET_GROUP = "budget"
_RETRY_GROUP = "retries"
_STENO_GROUP = "steno"
_OTEL_GROUP = "telemetry and notifications"
_NOTIFY_ON_CHOICES = ("failure", "budget", "always")

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
        "maximum turns of all attempts; N..M: start with N, resume with twice as many, up to M "
        "in total",
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
        "add_dirs",
        parse_paths,
        "DIR",
        "additional folder the agent may work in",
        (),
        is_repeatable=True,
        flag="--add-dir",
        former_name="add_dir",
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
    Setting(
        "permission_relay",
        parse_bool,
        "",
        "ask a person to permit calls that would be denied, by `steno team approve` or the page; "
        "requires the extra mcp",
        False,
    ),
    Setting(
        "permission_timeout",
        parse_duration,
        "TIME",
        "with --permission-relay: time limit for the answer; then the call is denied",
        600.0,
    ),
)
_TIME_SETTINGS = (
    Setting(
        "deadline",
        parse_deadline,
        "TIME",
        "time limit for the whole task, waits included: a duration, or a time of day such as 18:30",
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
    Setting("silence", parse_duration, "TIME", "maximum time without output", 360.0, _TIME_GROUP),
    Setting(
        "tool_silence",
        parse_duration,
        "TIME",
        "maximum time without output while a tool runs",
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
        "fractions of the context window at which to alert, or off",
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
        "verdicts that trigger a retry, separated by commas",
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
        "name",
        parse_label,
        "TEXT",
        "name of the run, shown by `steno show` and `steno runs`",
        None,
        _STENO_GROUP,
        is_file_setting=False,  # of one run
    ),
    Setting(
        "tag",
        parse_tags,
        "K=V",
        "label of the run, for `steno runs --tag` and `steno usage tag`",
        {},
        _STENO_GROUP,
        is_repeatable=True,
    ),
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
        "days to keep the git snapshots that can undo a run (refs/steno), or off",
        30,
        _STENO_GROUP,
    ),
    Setting(
        "undo_runs",
        parse_limit,
        "N",
        "number of runs per repository whose git snapshots are kept, or off",
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
_OTEL_SETTINGS = (
    Setting(
        "otel",
        parse_otel,
        "[=URL]",
        "send spans and metrics to an OpenTelemetry collector (OTLP/HTTP); without URL, to that of "
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        None,
        _OTEL_GROUP,
    ),
    Setting(
        "otel_content",
        parse_bool,
        "",
        "also send prompts, answers and tool inputs and outputs, without secrets",
        False,
        _OTEL_GROUP,
    ),
    Setting(
        "notify",
        parse_services,
        "URL",
        "notify a service when the run ends: an apprise URL for Slack, mail, ntfy, a webhook "
        "(repeatable)",
        (),
        _OTEL_GROUP,
        is_repeatable=True,
    ),
    Setting(
        "notify_on",
        subset_of(*_NOTIFY_ON_CHOICES),
        "WHEN",
        "when to notify: failure, budget (a budget reaches --warn-at or its end), always",
        ("failure",),
        _OTEL_GROUP,
        is_repeatable=True,
        choices=(*_NOTIFY_ON_CHOICES, "none"),
    ),
)
SETTINGS = (
    *_AGENT_SETTINGS,
    *_TIME_SETTINGS,
    *_BUDGET_SETTINGS,
    *_RETRY_SETTINGS,
    *_STENO_SETTINGS,
    *_OTEL_SETTINGS,
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
FORMER_SETTING_NAMES = {one.name: one.former_name for one in SETTINGS if one.former_name}
