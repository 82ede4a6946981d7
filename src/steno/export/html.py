"""A conversation as one HTML file: no scripts, nothing loaded, all text of the agent escaped."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..report import Report
from ..views.formatting import (
    clean_lines,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_percent,
    format_time,
    single_line,
    verdict_colour,
)
from ..views.summary import COST_SOURCES, other_warnings, verdict_reason
from .conversation import Conversation, Step
from .presentation import (
    cut_middle,
    input_text,
    is_note,
    output_text,
    request_facts,
    start_of,
    step_facts,
    step_label,
)
from .steps import StepImage

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_MARKDOWN_CHARS = 20_000  # a longer text is not rendered: the worst take 0.3 s
TARGET_BYTES = 2_500_000  # of the file: small enough for a mail and for a phone
# How much of a text is kept, from the first limit with which the file stays small enough.
TEXT_LIMITS = (200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 2_000)
MAX_OPEN_PATCH_LINES = 30
# Of images, in base64: screenshots have 0.1 to 1 MB. Larger ones are only named.
MAX_IMAGE_CHARS = 1_500_000
MAX_IMAGES_CHARS = 6_000_000  # of one file
TEXTS_PER_STEP = 3  # input, patch and output of a call
LINK_PREFIXES = ("http://", "https://", "mailto:")


def template_environment(max_chars: int | None = None) -> "Environment":
    """The templates with their filters; texts are cut to `max_chars`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("steno.export"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": clean_lines,
        "line": single_line,
        "cut": partial(cut_middle, most=max_chars or 1 << 62),
        "markdown": markdown_renderer(max_chars),
        "label": step_label,
        "is_note": is_note,
        "is_open": _is_open,
        "facts": step_facts,
        "request_facts": request_facts,
        "input_text": input_text,
        "output_text": output_text,
        "images": ImageLimit().shown,
    }
    return environment


class ImageLimit:
    """Chooses the images that a page shows."""

    def __init__(self, total_chars: int | None = None) -> None:
        self._left = total_chars

    def shown(self, step: Step) -> list[StepImage]:
        images = []
        for image in step.images:
            size = len(image.data)
            if size > MAX_IMAGE_CHARS or (self._left is not None and size > self._left):
                continue
            if self._left is not None:
                self._left -= size
            images.append(image)
        return images


def markdown_renderer(max_chars: int | None) -> Callable[[str], str]:
    """Renders Markdown to safe HTML: no raw HTML, no images, links to web addresses only."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    class SafeMarkdown(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802  # its name in the library
            return url.lower().startswith(LINK_PREFIXES)

    parser = SafeMarkdown("commonmark", {"html": False}).enable("table").disable("image")

    def open_link(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        tokens[index].attrSet("rel", "noopener noreferrer nofollow")
        return str(renderer.renderToken(tokens, index, options, env))

    parser.add_render_rule("link_open", open_link)

    def render(text: str) -> str:
        if len(text) <= MAX_MARKDOWN_CHARS:
            return Markup(parser.render(clean_lines(text)))  # noqa: S704  # made safe above
        head, hidden, tail = cut_middle(text, max_chars or len(text))
        note = f"\n… {hidden:,} characters left out …\n" if hidden else ""
        return Markup("<pre>{}</pre>").format(escape(clean_lines(head + note + tail)))

    return render


def _is_open(step: Step) -> bool:
    """Whether a call is shown unfolded: what went wrong, and small changes."""
    tool = step.tool
    if tool is None or tool.status != "ok":
        return tool is not None
    return 0 < tool.patch.count("\n") <= MAX_OPEN_PATCH_LINES


def style_sheet(*names: str) -> str:
    """Style sheets of exported files and the page, in this order."""
    folder = files("steno.export").joinpath("templates")
    return "".join(folder.joinpath(f"{name}.css").read_text("utf-8") for name in names)


def html_page(conversation: Conversation, is_full: bool = False) -> Iterator[str]:
    """The page in pieces, so that a long conversation is never in memory as a whole."""
    from markupsafe import Markup

    limit = None if is_full else text_limit(conversation)
    report = conversation.shareable_report()
    facts = _facts(report)
    style = style_sheet("colours", "steps", "style")
    environment = template_environment(limit)
    if not is_full:
        environment.filters["images"] = ImageLimit(MAX_IMAGES_CHARS).shown
    template = environment.get_template("conversation.html")
    yield from template.generate(
        conversation=conversation,
        report=report,
        steps=conversation,
        step_count=len(conversation),
        started_ms=start_of(report),
        title=report.name or conversation.prompt,
        reason=verdict_reason(report),
        warnings=other_warnings(report),
        colour=verdict_colour(report.verdict),
        evidence=list(conversation.evidence().items()),
        figures=report_figures(report),
        facts=facts,
        about=[value for name, value in facts if name in ("agent", "model", "started")],
        style=Markup(style),  # noqa: S704  # our own file
        style_hash=f"sha256-{b64encode(sha256(style.encode()).digest()).decode()}",
        version=__version__,
        cut=limit is not None and any(size > limit for size in conversation.sizes()),
    )


def text_limit(conversation: Conversation) -> int:
    """The largest limit for texts with which the file stays small."""
    sizes = conversation.sizes()
    for limit in TEXT_LIMITS:
        if sum(min(size, TEXTS_PER_STEP * limit) for size in sizes) <= TARGET_BYTES:
            return limit
    return TEXT_LIMITS[-1]


def report_figures(report: Report) -> list[tuple[str, str, str]]:
    """Name, value and note of the figures on the card."""
    tokens = report.tokens
    cached = format_percent(report.cache_hit_rate)
    calls = len(report.tools)
    failed = sum(1 for tool in report.tools if tool.ok is False and not tool.denied)
    context = report.context
    source = COST_SOURCES.get(report.cost.source, "")
    turns = "" if report.turns is None else format_count(report.turns, "turn")
    return [
        ("cost", format_money(report.cost.usd), source),
        (
            "tokens",
            format_compact(tokens.total),
            f"{format_compact(tokens.output)} output, {cached} of the input cached",
        ),
        ("context", format_percent(context.fraction), context.text),
        ("time", format_duration(report.duration_ms), turns),
        ("tool calls", f"{calls:,}", f"{failed} failed" if failed else ""),
        ("changed files", f"{len(report.files):,}", ""),
    ]


def _facts(report: Report) -> list[tuple[str, str]]:
    """Where and when the run happened."""
    facts = {
        "agent": " ".join(filter(None, (report.agent, report.agent_version))),
        "model": report.model,
        "run": report.run_id,
        "session": report.session_id,
        "folder": report.cwd,
        "started": format_time(report.started_at) if report.started_at is not None else None,
        "branch": report.origin.branch,
        "commit": report.origin.commit,
        "host": report.origin.host,
        "exit code": None if report.exit_code is None else str(report.exit_code),
    }
    tags = [(name, value) for name, value in report.tags.items()]
    return [(name, value) for name, value in facts.items() if value] + tags
