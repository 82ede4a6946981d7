"""The exact command that goes on with a task that is not done (R10). Pure: it only writes words down."""

from collections.abc import Mapping
from shlex import join
from typing import Any

from ..redact import redact, redact_argv
from ..report import TaskReport
from ..settings import MODEL_SIZES, SETTINGS

MAX_TURNS = 30  # as far as turns are doubled, as attempts do it
ANSWER_PLACEHOLDER = "<your answer>"
PROMPT_BY_VERDICT = {"interactive": ANSWER_PLACEHOLDER, "background_task": "is the background work done?", "context_full": "/compact"}
DISPLAY_SETTINGS = ("quiet", "feed", "exit_from")  # how it is shown, not how it is done


def resume_command(report: TaskReport, options: Mapping[str, Any]) -> str | None:
    """`steno run --resume SESSION ...` with the options as they were given, and what the verdict asks for.

    `options` are those of the command line by name; `cwd` is set where the folder matters. None: there is nothing to go on
    with, because it is done or because no session was begun.
    """
    if report.ok or report.session_id is None or not report.requests:
        return None
    words = ["steno", "run", "--resume", report.session_id]
    for name in ("cwd", "tape"):
        words += [] if options.get(name) is None else [f"--{name}", str(options[name])]
    options = _adapt_to_fallback_agent(report, options)
    changed = {**options, **_changed_options(report, options)}
    for setting in SETTINGS:
        value = changed.get(setting.name)
        if value is None or value is False or setting.name in DISPLAY_SETTINGS:
            continue
        words += [setting.option] if value is True else _option_args(setting.option, value)
    words.append(PROMPT_BY_VERDICT.get(report.verdict, "continue"))
    extra = redact_argv(list(options.get("args") or ()))
    return join([*words, *(["--", *extra] if extra else [])])


def _adapt_to_fallback_agent(report: TaskReport, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where another agent took over, its session goes on with that one; program, model and arguments were the first one's."""
    agents = [attempt.agent for attempt in report.attempts]
    if len(set(agents)) < 2:
        return options
    model, limit = options.get("model"), options.get("on_limit")
    first = {"program": None, "args": (), "fallback_agent": None, "fallback_model": None}
    kept = {"model": model if model in MODEL_SIZES else None, "on_limit": None if limit == "fallback" else limit}
    return {**options, **first, **kept, "agent": report.agent}


def _option_args(option: str, value: Any) -> list[str]:
    """An option with its value, once for each of several. One that begins with a dash is tied to its option."""
    found = []
    for one in value if isinstance(value, list | tuple) else [value]:
        text = redact(str(one))
        found += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return found


def _changed_options(report: TaskReport, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be different this time."""
    if report.verdict == "permission":
        rules = [denial.allow_rule for denial in report.denials if denial.allow_rule]
        return {"allow": list(dict.fromkeys([*(options.get("allow") or ()), *rules]))}
    if report.verdict == "max_turns":
        return {"max_turns": _next_max_turns(options.get("max_turns"), report)}
    return {}


def _next_max_turns(first: int | None, report: TaskReport) -> int | None:
    """Twice what the last attempt had, as one more attempt would have got."""
    if first is None:
        return None if report.turns is None else max(min(2 * report.turns, MAX_TURNS), report.turns)
    turns = first
    for _ in report.attempts:
        turns = max(turns, min(2 * turns, MAX_TURNS))
    return turns
