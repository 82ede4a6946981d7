"""Which call a change of a file belongs to, where only the disk or git tells of it: the one that was running (W3). Pure."""

from collections.abc import Iterable
from typing import NamedTuple

ATTRIBUTION_WINDOW_MS = (
    500  # milliseconds: what the disk shows of a call's work may be seen this long after the call
)
READ_ONLY_KINDS = ("file_read", "search", "web", "todo")  # kinds of calls that change no file
EXPLICIT_FILE_KINDS = (
    "file_write",
    "file_edit",
    "notebook",
)  # kinds that say themselves which file they change


class CallSpan(NamedTuple):
    """A call, and when it ran: in milliseconds since 1970, without an end while it runs."""

    call_id: str
    kind: str
    started_ms: float
    ended_ms: float


def file_changing_calls(calls: Iterable[CallSpan]) -> list[CallSpan]:
    """Those that can change a file."""
    return [span for span in calls if span.kind not in READ_ONLY_KINDS]


def call_running_at(able: list[CallSpan], at: float) -> str | None:
    """The one able call that ran then; where none did, the one that had just ended, or was told of a moment later."""
    then = [span for span in able if span.started_ms <= at <= span.ended_ms]
    if then:
        loose = [span for span in then if span.kind not in EXPLICIT_FILE_KINDS] or then
        return loose[0].call_id if len(loose) == 1 else None
    just = [
        (span.ended_ms, span.call_id)
        for span in able
        if span.ended_ms <= at <= span.ended_ms + ATTRIBUTION_WINDOW_MS
    ]
    soon = [
        (span.started_ms, span.call_id)
        for span in able
        if span.started_ms - ATTRIBUTION_WINDOW_MS <= at < span.started_ms
    ]
    return max(just)[1] if just else min(soon)[1] if soon else None


def only_possible_call(calls: Iterable[tuple[str, str]]) -> str | None:
    """The one call that can have changed files without telling which; None where it could be several, or none. Call and kind."""
    loose = [call for call, kind in calls if kind not in (*READ_ONLY_KINDS, *EXPLICIT_FILE_KINDS)]
    return loose[0] if len(loose) == 1 else None
