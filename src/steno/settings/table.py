"""The settings: every name with its kind, its default and its meaning. One list serves options, environment, files and documents.

Values only. The defaults of clocks and policy are those of `supervise`; a test holds them together.
"""

from typing import Any

from msgspec import Struct

from ..report import VERDICTS
from . import kinds
from .kinds import Kind

NEVER_AGAIN = ("success", "auth", "not_found", "interrupted", "killed")  # nothing is gained by another attempt
RETRIED = ("max_turns", "rate_limit", "api", "network", "stalled", "no_result", "context_full")


class Setting(Struct, frozen=True):
    """One setting. `metavar` is empty for a switch; `many`: its option may be given several times."""

    name: str
    kind: Kind
    metavar: str
    what: str
    default: Any = None
    group: str = "the agent"
    many: bool = False
    own: bool = False  # in a file it belongs to an agent: [agents.NAME]
    filed: bool = True  # it may stand in a file
    words: tuple[str, ...] = ()  # all that it may be, where those are a few words

    @property
    def option(self) -> str:
        """As an option of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """As a variable of the environment. One variable cannot hold several others."""
        return None if self.kind is kinds.pairs else f"STENO_{self.name.upper()}"


_RETRIABLE = tuple(word for word in VERDICTS if word not in NEVER_AGAIN)
_ON_LIMIT, _WHOM, _LOOKED = ("wait", "fail", "fallback"), ("verdict", "agent"), ("none", "git", "all")
_CHANGES = "besides what tools tell, see changed files by: git (before and after), all (the file system too), none"
_WHERE = "the ledger: a path or postgresql://... (default: a file in the user's data directory)"
_FALLBACK = "the model for `--on-limit fallback`, and for the agent's own use"
_SERVED = "a model server in place of its maker's: ollama[:URL], openai:URL or anthropic:URL; with --model"
_OTHER = "the agent that goes on where this one is not there, not signed in, out of credit, or limited with `--on-limit fallback`"
_TIME, _SPEND, _AGAIN, _OURS = "clocks", "what it may spend", "what comes after an attempt", "steno itself"
SETTINGS = (
    Setting("agent", kinds.text, "NAME", "the agent", "claude"),
    Setting("program", kinds.text, "PATH", "its program, where that is not simply its name in PATH", own=True),
    Setting("model", kinds.text, "NAME", "its model: small, medium or large, or a name that it knows"),
    Setting("backend", kinds.server, "WHERE", _SERVED),
    Setting("max_turns", kinds.count, "N", "turns at most"),
    Setting("permission_mode", kinds.text, "MODE", "what it may do unasked, in its own words"),
    Setting("allow", kinds.words, "TOOL", "a tool, or a rule, that needs no permission", (), many=True),
    Setting("deny", kinds.words, "TOOL", "a tool, or a rule, that is refused", (), many=True),
    Setting("system_prompt", kinds.text, "TEXT", "added to its own system prompt"),
    Setting("add_dir", kinds.paths, "DIR", "another folder that it may work in", (), many=True),
    Setting("mcp_config", kinds.paths, "FILE", "MCP servers: a file, or JSON", (), many=True),
    Setting("json_schema", kinds.schema, "FILE", "the shape of its answer: a JSON schema in a file, or as it is"),
    Setting("env", kinds.pairs, "K=V", "a variable for its environment", {}, many=True),
    Setting("no_api_key", kinds.switch, "", "withhold API keys: use its own sign-in", False),
    Setting("steer", kinds.switch, "", "take messages while it runs, from `steno send`", False),
    Setting("timeout", kinds.seconds, "TIME", "an attempt may take so long", None, _TIME),
    Setting("first_output", kinds.seconds, "TIME", "its first output must come within", 180.0, _TIME),
    Setting("silence", kinds.seconds, "TIME", "it may be silent for", 360.0, _TIME),
    Setting("tool_silence", kinds.seconds, "TIME", "the same while a tool runs", 3600.0, _TIME),
    Setting("after_result", kinds.seconds, "TIME", "it may live on after its result", 30.0, _TIME),
    Setting("background", kinds.seconds, "TIME", "the same while work of its own goes on in the background", 600.0, _TIME),
    Setting("max_cost", kinds.dollars, "USD", "all attempts together may cost", None, _SPEND),
    Setting("max_tokens", kinds.count, "N", "all attempts together may use", None, _SPEND),
    Setting("warn_at", kinds.fraction, "PART", "say so when this part of it is spent", 0.8, _SPEND),
    Setting("attempts", kinds.count, "N", "attempts at most; waits for a limit and handovers are not counted", 3, _AGAIN),
    Setting(
        "resume_on", kinds.some_of(*_RETRIABLE), "WORD", "verdicts that are followed by another", RETRIED, _AGAIN, many=True,
        words=(*_RETRIABLE, "none"),
    ),
    Setting(
        "on_limit", kinds.one_of(*_ON_LIMIT), "WHAT", "at a usage limit: wait, fail or fallback", "wait", _AGAIN, words=_ON_LIMIT,
    ),
    Setting("fallback_model", kinds.text, "NAME", _FALLBACK, None, _AGAIN),
    Setting("fallback_agent", kinds.words, "NAME", _OTHER, (), _AGAIN, many=True),
    Setting("refresh_at", kinds.fraction, "PART", "a context this full goes on in a new session, with a summary", 0.8, _AGAIN),
    Setting(
        "exit_from", kinds.one_of(*_WHOM), "WHOM", "the exit code: the verdict's, or the agent's own", "verdict", _OURS,
        words=_WHOM,
    ),
    Setting("no_advice", kinds.switch, "", "judge without `interactive` and `background_task`", False, _OURS),
    Setting("changes", kinds.one_of(*_LOOKED), "HOW", _CHANGES, "git", _OURS, words=_LOOKED),
    Setting("feed", kinds.switch, "", "on stderr, a line for each thing that happens", False, _OURS),
    Setting("quiet", kinds.switch, "", "on stderr, only what is wrong", False, _OURS),
    Setting("ledger", kinds.text, "URL", _WHERE, None, _OURS, filed=False),  # one for all commands
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}
