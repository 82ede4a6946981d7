"""Which call a change of a file belongs to, where only the disk or git tells of it: the one that was running (W3). Pure."""

from collections.abc import Iterable
from typing import NamedTuple

LATE = 500  # milliseconds: what the disk shows of a call's work may be seen this long after the call
QUIET = ("file_read", "search", "web", "todo")  # kinds of calls that change no file
NAMED = ("file_write", "file_edit", "notebook")  # kinds that say themselves which file they change


class Span(NamedTuple):
    """A call, and when it ran: in milliseconds since 1970, without an end while it runs."""

    call: str
    kind: str
    begun: float
    ended: float


def able(calls: Iterable[Span]) -> list[Span]:
    """Those that can change a file."""
    return [span for span in calls if span.kind not in QUIET]


def running(able: list[Span], at: float) -> str | None:
    """The one able call that ran then; where none did, the one that had just ended, or was told of a moment later."""
    then = [span for span in able if span.begun <= at <= span.ended]
    if then:
        loose = [span for span in then if span.kind not in NAMED] or then
        return loose[0].call if len(loose) == 1 else None
    just = [(span.ended, span.call) for span in able if span.ended <= at <= span.ended + LATE]
    soon = [(span.begun, span.call) for span in able if span.begun - LATE <= at < span.begun]
    return max(just)[1] if just else min(soon)[1] if soon else None


def only(calls: Iterable[tuple[str, str]]) -> str | None:
    """The one call that can have changed files without telling which; None where it could be several, or none. Call and kind."""
    loose = [call for call, kind in calls if kind not in (*QUIET, *NAMED)]
    return loose[0] if len(loose) == 1 else None
