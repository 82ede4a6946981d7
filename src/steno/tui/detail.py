"""The pages of one run: summary, conversation, tools, files with diffs, context."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

from ..errors import StenoError
from ..export.conversation import Conversation, read_conversation
from ..export.text import transcript_lines
from ..ledger.queries import sessions
from ..ledger.queries.context import context_history
from ..ledger.store import ledger_exists, open_ledger
from ..pricing import price
from ..recording.open import open_recording
from ..report import Report
from ..views.context import plot
from ..views.diff import DIFF_COLOURS
from ..views.formatting import clean, format_duration, single_line
from ..views.summary import card
from ..views.table import CHANGE_COLOURS, Cell, Column, PageStyle, render_table
from .snapshot import TopRun

PAGES = ("summary", "conversation", "tools", "files", "context")
MAX_LINES = 20_000  # of one page; `steno show --transcript` prints everything
MAX_PATCH_LINES = 400
TOOL_COLUMNS = (
    Column("tool", can_truncate=True),
    Column("result"),
    Column("time", align_right=True),
    Column("on", can_truncate=True, min_columns=20),
)


def page_lines(run: TopRun, page: str, ledger: str | None, style: PageStyle) -> list[str]:
    """The sanitized lines of a page; a reason where there is nothing to show."""
    try:
        if page == "context":
            return _context_lines(run, ledger, style)
        if run.recording is None:
            raise StenoError("this run has no recording")
        with read_conversation(open_recording(run.recording), price=price) as conversation:
            lines = list(islice(_conversation_page(conversation, page, style), MAX_LINES + 1))
    except (StenoError, OSError) as error:
        return [style.paint(clean(str(error)), "yellow")]
    if len(lines) > MAX_LINES:
        rest = f"… more than {MAX_LINES:,} lines; use: steno show {run.run_id} --transcript"
        lines[MAX_LINES:] = [style.paint(rest, "dim")]
    return lines or [style.paint(f"no {page}", "dim")]


def _conversation_page(conversation: Conversation, page: str, style: PageStyle) -> Iterator[str]:
    if page == "conversation":
        return transcript_lines(conversation, style)
    if page == "tools":
        return iter(_tool_lines(conversation, style))
    if page == "files":
        return _file_lines(conversation, conversation.report, style)
    return iter(card(conversation.report, style))


def _tool_lines(conversation: Conversation, style: PageStyle) -> list[str]:
    colours = {"ok": "green", "failed": "red", "denied": "yellow"}
    rows: list[list[Cell | str]] = [
        [
            "  " * step.depth + step.tool.name,
            Cell(step.tool.status or "no result", colours.get(step.tool.status or "", "dim")),
            "" if step.tool.duration_ms is None else format_duration(step.tool.duration_ms),
            step.tool.summary,
        ]
        for step in conversation
        if step.tool is not None
    ]
    return render_table(style, TOOL_COLUMNS, rows) if rows else []


def _file_lines(conversation: Conversation, report: Report, style: PageStyle) -> Iterator[str]:
    for file in report.files:
        colour = CHANGE_COLOURS.get(file.change, "")
        yield f"{style.paint(f'{file.change:9}', colour)} {single_line(file.path)}"
    for step in conversation:
        if step.tool is None or not step.tool.patch:
            continue
        yield ""
        yield style.paint(f"{single_line(step.tool.name)} {single_line(step.tool.summary)}", "bold")
        for line in islice(step.tool.patch.splitlines(), MAX_PATCH_LINES):
            yield style.paint(clean(line.expandtabs(4)), DIFF_COLOURS.get(line[:1], ""))


def _context_lines(run: TopRun, ledger: str | None, style: PageStyle) -> list[str]:
    if run.session_id is None or not ledger_exists(ledger):
        raise StenoError("the context of this run is not in the ledger")
    with closing(open_ledger(ledger, read_only=True)) as store:
        session = sessions.get_session(store, run.session_id)
        points = context_history(store, session)
    if not points:
        raise StenoError("no requests of this session in the ledger yet")
    return [*plot(points, style), "", single_line(session.context.text)]
