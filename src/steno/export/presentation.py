"""What the forms of a conversation share: labels, folding, the input of a call as text."""

import msgspec

from ..codec.colours import strip_colours, strip_tag
from ..report import Report
from ..views.formatting import format_compact, format_duration, format_money
from .steps import MAX_SUMMARY_CHARS, Step, StepRequest, ToolUse

STEP_LABELS = {
    "message": "message from the agent",
    "command": "local command",
    "text": "answer",
    "rate_limit": "rate limit",
    "sent": "message sent",
    "task": "background task",
    "interrupt": "interrupted",
    "stop": "stopped by steno",
    "malformed": "malformed line",
    "unknown": "unknown event",
}
# Fields of an input that a patch shows.
PATCH_FIELDS = {
    *("content", "old_string", "new_string", "edits", "replace_all", "new_source"),
    *("oldString", "newString", "old_str", "new_str"),
}
PROSE_KINDS = ("text", "prompt", "sent", "message", "thinking")
STATUS_LABELS = {"failed": "failed", "denied": "denied", None: "no result"}
STEP_COLOURS = {
    **dict.fromkeys(("prompt", "sent", "command"), "cyan"),
    **dict.fromkeys(("failure", "denied", "exit", "malformed"), "red"),
    **dict.fromkeys(("retry", "rate_limit", "compaction", "interrupt", "stop", "alert"), "yellow"),
    **dict.fromkeys(("stderr", "hook"), "yellow"),
}
STATUS_COLOURS = {"ok": "green", "failed": "red", "denied": "yellow", None: "yellow"}


def step_label(step: Step) -> str:
    """The heading of a step: the name of the tool, or what kind of step it is."""
    return step.tool.name if step.tool is not None else STEP_LABELS.get(step.kind, step.kind)


def is_note(step: Step) -> bool:
    """Whether the text of a step is short enough for its heading."""
    is_short = len(step.text) <= MAX_SUMMARY_CHARS and "\n" not in step.text
    return step.tool is None and is_short and step.kind not in PROSE_KINDS


def step_colour(step: Step) -> str:
    if step.tool is not None:
        return STATUS_COLOURS.get(step.tool.status, "")
    return STEP_COLOURS.get(step.kind, "")


def step_facts(step: Step, started_ms: int | None) -> list[str]:
    """Status and duration of a call, cost and context of a request, time since the start."""
    facts = []
    if step.tool is not None:
        if step.tool.status != "ok":
            facts.append(STATUS_LABELS.get(step.tool.status, str(step.tool.status)))
        if step.tool.exit_code:
            facts.append(f"exit code {step.tool.exit_code}")
        if step.tool.background:
            facts.append("background")
        if step.tool.duration_ms is not None:
            facts.append(format_duration(step.tool.duration_ms))
    if step.request is not None:
        facts += request_facts(step.request)
    if step.at is not None and started_ms is not None:
        facts.append(format_elapsed(step.at - started_ms))
    return facts


def request_facts(request: StepRequest) -> list[str]:
    """Cost, output tokens and context; a sign marks what is only a lower bound."""
    facts = []
    sign = "≥" if request.is_lower_bound else ""
    if request.cost_usd is not None:
        facts.append(f"{sign}{format_money(request.cost_usd)}")
    if request.tokens.output is not None and not request.is_lower_bound:
        facts.append(f"output {format_compact(request.tokens.output)}")
    if request.context is not None:
        facts.append(f"context {format_compact(request.context)}")
    return facts


def format_elapsed(milliseconds: int) -> str:
    """Time since the start: +0:07, +12:30, +1:02:03."""
    sign = "-" if milliseconds <= -1000 else "+"  # events of one moment may be out of order
    minutes, seconds = divmod(abs(milliseconds) // 1000, 60)
    if minutes < 60:
        return f"{sign}{minutes}:{seconds:02}"
    return f"{sign}{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def start_of(report: Report) -> int | None:
    """The start of a run in milliseconds since 1970."""
    return None if report.started_at is None else int(report.started_at.timestamp() * 1000)


def input_text(tool: ToolUse, has_summary: bool = True) -> str:
    """The input of a call as readable text, without what its patch or its summary shows.

    Multi-line texts are shown as they are, other values as JSON.
    """
    if not isinstance(tool.input, dict):
        return "" if tool.input is None else _to_text(tool.input)
    if has_summary and _to_text(tool.input) == tool.summary:
        return ""
    return "\n".join(
        _format_field(str(name), value)
        for name, value in tool.input.items()
        if not (tool.patch and name in PATCH_FIELDS)
        and not (has_summary and _is_summary(_to_text(value), tool.summary))
    )


def _is_summary(value: str, summary: str) -> bool:
    """Whether the summary shows the value; of a path it may leave out the run's folder."""
    return bool(summary) and (value == summary or value.endswith(f"/{summary}"))


def output_text(tool: ToolUse) -> str:
    """What a call returned; empty if its patch says more."""
    if tool.patch and tool.status == "ok":
        return ""
    return strip_tag(tool.output) if tool.status != "ok" else strip_colours(tool.output)


def _format_field(name: str, value: object) -> str:
    text = _to_text(value)
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8")


def fold(lines: list[str], most: int) -> tuple[list[str], int, list[str]]:
    """The first lines, the number of lines left out, and the last lines; at most `most` in all.

    The end is longer than the start: a command that fails prints its errors last.
    """
    if len(lines) <= most:
        return lines, 0, []
    head = most * 2 // 5
    return lines[:head], len(lines) - most, lines[head - most :]


def cut_middle(text: str, most: int) -> tuple[str, int, str]:
    """The start of a text, the number of characters left out, and its end."""
    if len(text) <= most:
        return text, 0, ""
    half = most // 2
    return text[:half], len(text) - 2 * half, text[-half:]
