"""A conversation as Markdown, for an issue, a wiki or another model."""

import re
from collections.abc import Iterator
from typing import Any

from ..views.formatting import clean_lines, format_time, single_line
from ..views.summary import other_warnings, verdict_reason
from .conversation import Conversation
from .html import LINK_PREFIXES, MAX_MARKDOWN_CHARS, report_figures
from .presentation import (
    PROSE_KINDS,
    cut_middle,
    input_text,
    is_note,
    output_text,
    start_of,
    step_facts,
    step_label,
)
from .steps import Step, ToolUse

MAX_TEXT_CHARS = 20_000  # of an input, an output or a patch, unless everything is kept
MAX_HEADING_LEVEL = 6
_MARKUP = re.compile(r"([\\`*_\[\]<&|~])")  # what has a meaning inside a line


def escape_markdown(text: str) -> str:
    """Text without markup, for the inside of a line."""
    return _MARKUP.sub(r"\\\1", single_line(text))


def code_span(text: str) -> str:
    """Code on one line, between more backticks than it contains in a row."""
    line = single_line(text)
    ticks = "`" * (_longest_run(line, "`") + 1)
    pad = " " if line.startswith(("`", " ")) or line.endswith(("`", " ")) or not line else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def code_block(text: str, language: str = "") -> str:
    """A fenced block; the fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(text, "`") + 1)
    body = clean_lines(text).rstrip("\n")
    return f"{fence}{language}\n{body}\n{fence}"


def _longest_run(text: str, letter: str) -> int:
    return max(map(len, re.findall(f"{letter}+", text)), default=0)


def quote(text: str) -> str:
    """A text as a block quote with its own markup; as code if that markup may not be harmless."""
    text = clean_lines(text)
    if not _is_harmless(text):
        return code_block(text)
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _is_harmless(text: str) -> bool:
    """Whether the markup has no HTML, no images, and links to web addresses only.

    Definitions of links are refused, because they apply to the whole document.
    """
    if len(text) > MAX_MARKDOWN_CHARS:
        return False
    from markdown_it import MarkdownIt

    environment: dict[str, Any] = {}
    blocks = MarkdownIt("commonmark").parse(text, environment)
    if environment.get("references"):
        return False
    for token in (inner for block in blocks for inner in (block, *(block.children or ()))):
        if token.type in ("html_block", "html_inline", "image"):
            return False
        address = str(token.attrGet("href") or "")
        if token.type == "link_open" and not address.lower().startswith(LINK_PREFIXES):
            return False
    # Where validation refuses an address, the parser leaves the link as text; a viewer may not.
    return not re.search(r"\]\s*\(\s*<?\s*(?:javascript|data|vbscript|file)", text, re.I)


def markdown_page(conversation: Conversation, is_full: bool = False) -> Iterator[str]:
    """The page in pieces: verdict, figures, then a section for each step."""
    report = conversation.shareable_report()
    title = report.name or conversation.prompt or "Conversation"
    yield f"# {escape_markdown(title[:200])}\n\n"
    yield f"**{report.verdict}**: {escape_markdown(verdict_reason(report))}\n\n"
    if report.hint:
        yield f"Next: {code_span(report.hint)}\n\n"
    links = [
        f"[step {number}](#step-{number})" if number else f"line {line}"
        for line, number in conversation.evidence().items()
    ]
    if links:
        yield f"Evidence: {', '.join(links)}\n\n"
    for name, value, note in report_figures(report):
        yield f"- {name}: {escape_markdown(f'{value} ({note})' if note else value)}\n"
    about = (report.agent, report.agent_version, report.model)
    yield f"- agent: {escape_markdown(' '.join(filter(None, about)) or 'unknown')}\n"
    if report.started_at is not None:
        yield f"- started: {escape_markdown(format_time(report.started_at))}\n"
    for text in other_warnings(report):
        yield f"- warning: {escape_markdown(text)}\n"
    most = 1 << 62 if is_full else MAX_TEXT_CHARS
    for step in conversation:
        yield "\n" + "\n\n".join(_step_blocks(step, start_of(report), most)) + "\n"


def _step_blocks(step: Step, started_ms: int | None, most: int) -> Iterator[str]:
    level = "#" * min(MAX_HEADING_LEVEL, 2 + step.depth)
    heading = f"{level} {step.number}. {escape_markdown(step_label(step))}"
    if step.tool is not None and step.tool.summary:
        heading += f": {code_span(step.tool.summary)}"
    yield f'<a id="step-{step.number}"></a>\n\n{heading}'
    facts = step_facts(step, started_ms)
    if facts:
        yield f"*{escape_markdown(' · '.join(facts))}*"
    if step.tool is not None:
        yield from _tool_blocks(step.tool, most)
    elif step.kind in PROSE_KINDS:
        yield quote(_cut(step.text, most) or "(not printed by the agent)")
    elif is_note(step):
        if step.text:
            yield code_span(step.text)
    else:
        yield code_block(_cut(step.text, most))


def _tool_blocks(tool: ToolUse, most: int) -> Iterator[str]:
    given = input_text(tool)
    if given:
        yield code_block(_cut(given, most))
    if tool.patch:
        yield code_block(_cut(tool.patch, most), "diff")
    output = output_text(tool)
    if output:
        yield f"Output:\n\n{code_block(_cut(output, most))}"
    if tool.allow_rule is not None:
        yield f"Allow it with {code_span(tool.allow_rule)}"
    for file in tool.files:
        yield f"{file.change}: {code_span(file.path)}"


def _cut(text: str, most: int) -> str:
    head, hidden, tail = cut_middle(text, most)
    return f"{head}\n… {hidden:,} characters left out …\n{tail}" if hidden else head
