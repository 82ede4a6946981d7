"""The feed: a run told line by line while it goes on, for people who follow it. All text is cleaned; it never prints.

It tells what the timeline tells, with the clock of the run in front, and an answer in full lines.
"""

from datetime import datetime
from itertools import islice

from .. import event as ev
from .clean import cut, flat, pad, wrap
from .line import clock
from .look import Look
from .timeline import RUN_ON, Timeline, Told

HEAD = 20  # columns before what is told: the clock, the kind
ANSWER = 40  # lines of one text: more is read in the report
MOST = 400  # letters of one text for each line of it that is looked at


class Feed:
    """Turns the events of a run into lines."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._timeline = Timeline(look)
        self._start: datetime | None = None

    def lines(self, event: ev.Event) -> list[str]:
        """The lines of one event; none if it does not matter to people."""
        self._start = self._start or event.at
        told = self._told(event)
        if told is None:
            return []
        kind, text, style = told
        after = clock((event.at - self._start).total_seconds()) if event.at and self._start else ""
        head = f"{after:>8}  "
        indent = "  " if event.parent is not None else ""
        room = max(10, (self.look.limit or RUN_ON) - HEAD - len(indent))
        first, *rest = _wrapped(text, room) if type(event) is ev.Text else [cut(flat(text), room)]
        begun = self.look.paint(head, "dim") + indent + self.look.paint(pad(kind, 9), style) + " " + first
        return [begun.rstrip(" "), *((" " * HEAD + indent + line).rstrip(" ") for line in rest)]

    def _told(self, event: ev.Event) -> Told | None:
        if isinstance(event, ev.Notice):
            return ("steno", event.text or "", "bold") if event.kind == "note" else None  # a decision of ours
        return self._timeline.told(event)


def _wrapped(text: str, room: int) -> list[str]:
    """A text in lines, and a mark where there are more than anybody follows."""
    head = text.strip()[: ANSWER * MOST]
    found = list(islice(wrap(head, room), ANSWER + 1))
    return found if len(found) <= ANSWER else [*found[:ANSWER], "…"]
