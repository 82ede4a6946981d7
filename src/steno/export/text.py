"""A conversation as text for a terminal: every step with its time and cost, long texts folded."""

from collections.abc import Iterator

from ..report import Report
from ..views.diff import DIFF_COLOURS
from ..views.formatting import (
    TAB_WIDTH,
    clean,
    format_count,
    format_time,
    single_line,
    truncate,
    width,
    wrap,
)
from ..views.summary import card
from ..views.table import PageStyle
from .conversation import Conversation
from .presentation import (
    PROSE_KINDS,
    fold,
    input_text,
    is_note,
    output_text,
    start_of,
    step_colour,
    step_facts,
    step_label,
)
from .steps import Step, ToolUse

MAX_FOLDED_LINES = 20  # of an input, an output or a patch
MAX_THINKING_LINES = 2
MAX_LINE_CHARS = 2000  # of a line of output, unless everything is shown
NUMBER_COLUMNS = 4
MIN_SUMMARY_COLUMNS = 4
LONG_FACTS = ("context ", "output ")
SUBAGENT_INDENT = "│ "
MIN_COLUMNS = 20  # of a step in a deep subagent


def transcript_lines(
    conversation: Conversation, style: PageStyle, is_full: bool = False
) -> Iterator[str]:
    """The whole conversation, then the summary with the verdict."""
    report = conversation.shareable_report()
    page = TranscriptPage(style, start_of(report), is_full)
    yield from page.head(report)
    for step in conversation:
        yield ""
        yield from page.step_lines(step)
    yield ""
    yield style.paint("─" * style.columns, "dim")
    yield from card(report, style)


class TranscriptPage:
    """Formats steps for one page width."""

    def __init__(self, style: PageStyle, started_ms: int | None, is_full: bool) -> None:
        self.style = style
        self._started_ms = started_ms
        self._is_full = is_full

    def head(self, report: Report) -> Iterator[str]:
        facts = (
            " ".join(filter(None, (report.agent, report.agent_version))),
            report.model,
            format_time(report.started_at) if report.started_at is not None else None,
            report.run_id or report.session_id,
        )
        text = " · ".join(single_line(fact) for fact in facts if fact)
        yield from (self.style.paint(line, "dim") for line in wrap(text, self.style.columns))

    def step_lines(self, step: Step) -> Iterator[str]:
        """A heading with the facts at its right, then the text, input, output and patch."""
        margin = SUBAGENT_INDENT * min(step.depth, self.style.columns // 10)
        room = max(MIN_COLUMNS, self.style.columns - width(margin) - NUMBER_COLUMNS)
        summary = _summary(step)
        heading, is_complete = self._heading(step, summary, room)
        if step.tool is None and not is_complete:
            heading, _ = self._heading(step, "", room)
        dim_margin = self.style.paint(margin, "dim")
        yield f"{dim_margin}{self.style.paint(f'{step.number:>3}', 'dim')} {heading}".rstrip(" ")
        indent = " " * NUMBER_COLUMNS
        for line, colour in self._body(step, room, bool(summary) and is_complete):
            yield f"{dim_margin}{indent}{self.style.paint(line, colour)}".rstrip(" ")

    def _heading(self, step: Step, summary: str, room: int) -> tuple[str, bool]:
        """Label, summary and facts on one line, and whether the summary is complete."""
        facts = step_facts(step, self._started_ms)
        for fact in [*facts]:  # where there is little room, only status, cost and times
            if len(" · ".join(facts)) > room * 3 // 5 and fact.startswith(LONG_FACTS):
                facts.remove(fact)
        right = " · ".join(facts)
        left = room - len(right) - 2
        label = truncate(single_line(step_label(step)), max(4, left))
        free = left - width(label) - 1
        text = truncate(single_line(summary), free) if free >= MIN_SUMMARY_COLUMNS else ""
        gap = " " * (room - width(label) - width(text) - len(right) - bool(text))
        parts = (
            self.style.paint(label, f"bold {step_colour(step)}".strip()),
            f" {text}" if text else "",
            gap + self.style.paint(right, "dim") if right else "",
        )
        return "".join(parts), text == summary

    def _body(self, step: Step, columns: int, has_summary: bool) -> Iterator[tuple[str, str]]:
        if step.tool is not None:
            yield from self._tool(step.tool, columns, has_summary)
        elif step.kind == "thinking":
            text = step.text or "(not printed by the agent)"
            lines = list(self._wrapped(text, columns))
            yield from self._folded(lines, "dim", MAX_THINKING_LINES)
        elif step.kind in PROSE_KINDS:
            yield from ((line, "") for line in self._wrapped(step.text, columns))
        elif not has_summary:
            yield from self._folded(self._output(step.text, columns), step_colour(step))

    def _tool(self, tool: ToolUse, columns: int, has_summary: bool) -> Iterator[tuple[str, str]]:
        given = self._output(input_text(tool, has_summary), columns)
        yield from self._folded(given, "cyan")
        for line, colour in self._folded(self._output(tool.patch, columns), ""):
            yield line, colour or DIFF_COLOURS.get(line[:1], "")
        output = self._output(output_text(tool), columns)
        if given and output:
            yield "─" * 8, "dim"
        yield from self._folded(output, "red" if tool.status == "failed" else "")
        if tool.allow_rule is not None:
            yield from ((line, "yellow") for line in wrap(f"allow: {tool.allow_rule}", columns))
        if not tool.patch:
            yield from ((clean(f"{file.change}: {file.path}"), "dim") for file in tool.files)

    def _wrapped(self, text: str, columns: int) -> Iterator[str]:
        """Prose, broken between words; a very long line is no prose, and is broken anywhere."""
        is_long = max(map(len, text.split("\n"))) > MAX_LINE_CHARS
        yield from self._output(text, columns) if is_long else wrap(text, columns)

    def _output(self, text: str, columns: int) -> list[str]:
        """Preformatted text, broken at the page width."""
        lines: list[str] = []
        for line in text.replace("\r\n", "\n").rstrip("\n").split("\n") if text else ():
            rest = 0
            if not self._is_full and len(line) > MAX_LINE_CHARS:
                rest = len(line) - MAX_LINE_CHARS
                line = line[:MAX_LINE_CHARS]
            lines += _break_line(clean(line.expandtabs(TAB_WIDTH)), columns)
            if rest:
                lines.append(f"… {format_count(rest, 'more character')} (use --full)")
        return lines

    def _folded(
        self, lines: list[str], colour: str, most: int = MAX_FOLDED_LINES
    ) -> Iterator[tuple[str, str]]:
        """The lines; in the middle of a long text, the number of lines left out."""
        head, hidden, tail = (lines, 0, []) if self._is_full else fold(lines, most)
        yield from ((line, colour) for line in head)
        if hidden:
            yield f"… {format_count(hidden, 'more line')} (use --full)", "dim"
        yield from ((line, colour) for line in tail)


def _summary(step: Step) -> str:
    """What the heading shows after the label: the target of a call, a short text."""
    if step.tool is not None:
        return step.tool.summary
    return step.text if is_note(step) else ""


def _break_line(line: str, columns: int) -> Iterator[str]:
    """Pieces of at most `columns`."""
    if line.isascii():
        yield from (line[start : start + columns] for start in range(0, len(line) or 1, columns))
        return
    start = 0
    used = 0
    for position, letter in enumerate(line):
        used += width(letter)
        if used > columns:
            yield line[start:position]
            start = position
            used = width(letter)
    yield line[start:]
