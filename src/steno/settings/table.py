"""The settings: every name with its kind, its default and its meaning. One list serves options, environment, files and documents.

Values only. The defaults of clocks and policy are those of `supervise`; a test holds them together.
"""

from typing import Any

from msgspec import Struct

from ..report import VERDICTS
from . import kinds
from .kinds import ValueParser

NON_RETRYABLE_VERDICTS = ("success", "auth", "not_found", "interrupted", "killed")  # nothing is gained by another attempt
DEFAULT_RETRY_VERDICTS = ("max_turns", "rate_limit", "api", "network", "stalled", "no_result", "context_full")


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
        return None if self.parse is kinds.parse_env else f"STENO_{self.name.upper()}"


_RETRYABLE_VERDICTS = tuple(word for word in VERDICTS if word not in NON_RETRYABLE_VERDICTS)
_ON_LIMIT_CHOICES, _EXIT_FROM_CHOICES, _CHANGES_CHOICES = ("wait", "fail", "fallback"), ("verdict", "agent"), ("none", "git", "all")
_CHANGES_HELP = "besides what tools tell, see changed files by: git (before and after), all (the file system too), none"
_LEDGER_HELP = "the ledger: a path or postgresql://... (default: a file in the user's data directory)"
_FALLBACK_MODEL_HELP = "the model for `--on-limit fallback`, and for the agent's own use"
_BACKEND_HELP = "a model server in place of its maker's: ollama[:URL], openai:URL or anthropic:URL; with --model"
_FALLBACK_AGENT_HELP = "the agent that goes on where this one is not there, not signed in, out of credit, or limited with `--on-limit fallback`"
_TIME_GROUP, _BUDGET_GROUP, _RETRY_GROUP, _STENO_GROUP = "clocks", "what it may spend", "what comes after an attempt", "steno itself"
SETTINGS = (
    Setting("agent", kinds.parse_text, "NAME", "the agent", "claude"),
    Setting("program", kinds.parse_text, "PATH", "its program, where that is not simply its name in PATH", is_per_agent=True),
    Setting("model", kinds.parse_text, "NAME", "its model: small, medium or large, or a name that it knows"),
    Setting("backend", kinds.parse_backend, "WHERE", _BACKEND_HELP),
    Setting("max_turns", kinds.parse_count, "N", "turns at most"),
    Setting("permission_mode", kinds.parse_text, "MODE", "what it may do unasked, in its own words"),
    Setting("allow", kinds.parse_words, "TOOL", "a tool, or a rule, that needs no permission", (), is_repeatable=True),
    Setting("deny", kinds.parse_words, "TOOL", "a tool, or a rule, that is refused", (), is_repeatable=True),
    Setting("system_prompt", kinds.parse_text, "TEXT", "added to its own system prompt"),
    Setting("add_dir", kinds.parse_paths, "DIR", "another folder that it may work in", (), is_repeatable=True),
    Setting("mcp_config", kinds.parse_paths, "FILE", "MCP servers: a file, or JSON", (), is_repeatable=True),
    Setting("json_schema", kinds.parse_json_schema, "FILE", "the shape of its answer: a JSON schema in a file, or as it is"),
    Setting("env", kinds.parse_env, "K=V", "a variable for its environment", {}, is_repeatable=True),
    Setting("no_api_key", kinds.parse_bool, "", "withhold API keys: use its own sign-in", False),
    Setting("steer", kinds.parse_bool, "", "take messages while it runs, from `steno send`", False),
    Setting("timeout", kinds.parse_duration, "TIME", "an attempt may take so long", None, _TIME_GROUP),
    Setting("first_output", kinds.parse_duration, "TIME", "its first output must come within", 180.0, _TIME_GROUP),
    Setting("silence", kinds.parse_duration, "TIME", "it may be silent for", 360.0, _TIME_GROUP),
    Setting("tool_silence", kinds.parse_duration, "TIME", "the same while a tool runs", 3600.0, _TIME_GROUP),
    Setting("after_result", kinds.parse_duration, "TIME", "it may live on after its result", 30.0, _TIME_GROUP),
    Setting("background", kinds.parse_duration, "TIME", "the same while work of its own goes on in the background", 600.0, _TIME_GROUP),
    Setting("max_cost", kinds.parse_dollars, "USD", "all attempts together may cost", None, _BUDGET_GROUP),
    Setting("max_tokens", kinds.parse_count, "N", "all attempts together may use", None, _BUDGET_GROUP),
    Setting("warn_at", kinds.parse_fraction, "PART", "say so when this part of it is spent", 0.8, _BUDGET_GROUP),
    Setting("attempts", kinds.parse_count, "N", "attempts at most; waits for a limit and handovers are not counted", 3, _RETRY_GROUP),
    Setting(
        "resume_on", kinds.subset_of(*_RETRYABLE_VERDICTS), "WORD", "verdicts that are followed by another", DEFAULT_RETRY_VERDICTS, _RETRY_GROUP, is_repeatable=True,
        choices=(*_RETRYABLE_VERDICTS, "none"),
    ),
    Setting(
        "on_limit", kinds.one_of(*_ON_LIMIT_CHOICES), "WHAT", "at a usage limit: wait, fail or fallback", "wait", _RETRY_GROUP, choices=_ON_LIMIT_CHOICES,
    ),
    Setting("fallback_model", kinds.parse_text, "NAME", _FALLBACK_MODEL_HELP, None, _RETRY_GROUP),
    Setting("fallback_agent", kinds.parse_words, "NAME", _FALLBACK_AGENT_HELP, (), _RETRY_GROUP, is_repeatable=True),
    Setting("refresh_at", kinds.parse_fraction, "PART", "a context this full goes on in a new session, with a summary", 0.8, _RETRY_GROUP),
    Setting(
        "exit_from", kinds.one_of(*_EXIT_FROM_CHOICES), "WHOM", "the exit code: the verdict's, or the agent's own", "verdict", _STENO_GROUP,
        choices=_EXIT_FROM_CHOICES,
    ),
    Setting("no_advice", kinds.parse_bool, "", "judge without `interactive` and `background_task`", False, _STENO_GROUP),
    Setting("changes", kinds.one_of(*_CHANGES_CHOICES), "HOW", _CHANGES_HELP, "git", _STENO_GROUP, choices=_CHANGES_CHOICES),
    Setting("feed", kinds.parse_bool, "", "on stderr, a line for each thing that happens", False, _STENO_GROUP),
    Setting("quiet", kinds.parse_bool, "", "on stderr, only what is wrong", False, _STENO_GROUP),
    Setting("ledger", kinds.parse_text, "URL", _LEDGER_HELP, None, _STENO_GROUP, is_file_setting=False),  # one for all commands
)  # fmt: skip
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
