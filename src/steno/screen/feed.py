"""The feed: a run told line by line while it goes on, for people who follow it. All text is cleaned; it never prints.

It tells what the timeline tells, with the clock of the run in front, and an answer in full lines.
"""

from datetime import datetime
from itertools import islice

from .. import event as ev
from .clean import pad, single_line, truncate, wrap
from .line import format_clock
from .look import PageStyle
from .timeline import DEFAULT_LINE_COLUMNS, Timeline, TimelineEntry

PREFIX_COLUMNS = 20  # columns before what is told: the clock, the kind
MAX_TEXT_LINES = 40  # lines of one text: more is read in the report
MAX_CHARS_PER_LINE = 400  # letters of one text for each line of it that is looked at


class EventFeed:
    """Turns the events of a run into lines."""

    def __init__(self, look: PageStyle) -> None:
        self.style = look
        self._timeline = Timeline(look)
        self._started_at: datetime | None = None

    def lines(self, event: ev.Event) -> list[str]:
        """The lines of one event; none if it does not matter to people."""
        self._started_at = self._started_at or event.at
        told = self._entry(event)
        if told is None:
            return []
        kind, text, style = told
        after = format_clock((event.at - self._started_at).total_seconds()) if event.at and self._started_at else ""
        head = f"{after:>8}  "
        indent = "  " if event.parent is not None else ""
        room = max(10, (self.style.line_limit or DEFAULT_LINE_COLUMNS) - PREFIX_COLUMNS - len(indent))
        first, *rest = _wrap_text(text, room) if type(event) is ev.Text else [truncate(single_line(text), room)]
        begun = self.style.paint(head, "dim") + indent + self.style.paint(pad(kind, 9), style) + " " + first
        return [begun.rstrip(" "), *((" " * PREFIX_COLUMNS + indent + line).rstrip(" ") for line in rest)]

    def _entry(self, event: ev.Event) -> TimelineEntry | None:
        if isinstance(event, ev.Notice):
            return ("steno", event.text or "", "bold") if event.kind == "note" else None  # a decision of ours
        return self._timeline.entry(event)


def _wrap_text(text: str, room: int) -> list[str]:
    """A text in lines, and a mark where there are more than anybody follows."""
    head = text.strip()[: MAX_TEXT_LINES * MAX_CHARS_PER_LINE]
    found = list(islice(wrap(head, room), MAX_TEXT_LINES + 1))
    return found if len(found) <= MAX_TEXT_LINES else [*found[:MAX_TEXT_LINES], "…"]
