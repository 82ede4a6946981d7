"""The `steno run` command that resumes an unfinished task, and the names of its options."""

from collections.abc import Mapping
from shlex import join
from typing import Any

from ..codec.redact import redact, redact_argv
from ..config import MODEL_SIZES, SETTINGS
from ..report import TaskReport

MAX_TURNS = 30  # limit of doubling
ANSWER_PLACEHOLDER = "<your answer>"
PROMPT_BY_VERDICT = {
    "interactive": ANSWER_PLACEHOLDER,
    "background_task": "is the background work done?",
    "context_full": "/compact",
}
DISPLAY_SETTINGS = ("quiet", "feed", "exit_from")  # not repeated in the command to resume
# Options with another name than their setting or run option.
OPTION_NAMES = {"feed": "--log", "tape": "--recording", "args": "--"}


def option_name(name: str) -> str:
    """The option of `steno run` for a setting or run option."""
    return OPTION_NAMES.get(name, "--" + name.rstrip("_").replace("_", "-"))


def resume_command(report: TaskReport, options: Mapping[str, Any]) -> str | None:
    """`steno run --resume SESSION ...` with the same options, adapted to the verdict.

    `options` are those of the command line by name; `cwd` is set if the folder is another one.
    None if the task succeeded or no session was started.
    """
    if report.ok or report.session_id is None or not report.requests:
        return None
    argv = ["steno", "run", "--resume", report.session_id]
    for name in ("cwd", "tape"):
        argv += [] if options.get(name) is None else [option_name(name), str(options[name])]
    if len({attempt.agent for attempt in report.attempts}) > 1:
        options = _adapt_to_fallback_agent(report, options)
    changed = dict(options)  # as the verdict requires
    if report.verdict == "permission":
        rules = [denial.allow_rule for denial in report.denials if denial.allow_rule]
        changed["allow"] = list(dict.fromkeys([*(options.get("allow") or ()), *rules]))
    elif report.verdict == "max_turns":
        changed["max_turns"] = _next_max_turns(options.get("max_turns"), report)
    for setting in SETTINGS:
        value = changed.get(setting.name)
        if value is None or value is False or setting.name in DISPLAY_SETTINGS:
            continue
        option = option_name(setting.name)
        if value is True:
            argv.append(option)
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            text = redact(str(item))
            argv += [f"{option}={text}"] if text.startswith("-") else [option, text]
    argv.append(PROMPT_BY_VERDICT.get(report.verdict, "continue"))
    extra = redact_argv(list(options.get("args") or ()))
    return join([*argv, *(["--", *extra] if extra else [])])


def _adapt_to_fallback_agent(report: TaskReport, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resume the session of the agent that took over, without the first agent's options."""
    model = options.get("model")
    on_limit = options.get("on_limit")
    return {
        **options,
        "agent": report.agent,
        "program": None,
        "args": (),
        "fallback_agent": None,
        "fallback_model": None,
        "model": model if model in MODEL_SIZES else None,
        "on_limit": None if on_limit == "fallback" else on_limit,
    }


def _next_max_turns(given: int | str | None, report: TaskReport) -> int | str | None:
    """Twice the limit; a range again."""
    turns = report.turns if given is None else given
    return max(turns, min(2 * turns, MAX_TURNS)) if isinstance(turns, int) else turns
