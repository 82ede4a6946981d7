"""Attribution of file changes seen on disk or by git to the tool call that was running. Pure."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

ATTRIBUTION_WINDOW_MS = 500  # a change may be noticed this long after the call that made it
READ_ONLY_KINDS = ("file_read", "search", "web", "todo")
EXPLICIT_FILE_KINDS = ("file_write", "file_edit", "notebook")  # these report the file they change


class CallWithKind(Protocol):
    """Anything with a tool kind: an event, a report entry, a ledger row."""

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=CallWithKind)


class CallSpan(NamedTuple):
    """A call with its span in milliseconds since 1970; `ended_ms` is infinite while it runs."""

    call_id: str
    kind: str
    started_ms: float
    ended_ms: float


def file_changing_calls(calls: Iterable[C]) -> list[C]:
    """The calls that can change a file."""
    return [call for call in calls if call.kind not in READ_ONLY_KINDS]


def likely_writers(calls: Iterable[C]) -> list[C]:
    """The running calls that may have made a change no call reported.

    Calls that don't report their files (a shell command) come before those that do.
    """
    writers = file_changing_calls(calls)
    return [call for call in writers if call.kind not in EXPLICIT_FILE_KINDS] or writers


def call_running_at(spans: list[CallSpan], at: float) -> str | None:
    """The only likely writer running at that time; else one that ran just before or just after."""
    running = likely_writers(span for span in spans if span.started_ms <= at <= span.ended_ms)
    if running:
        return running[0].call_id if len(running) == 1 else None
    ended = [
        (span.ended_ms, span.call_id)
        for span in spans
        if span.ended_ms <= at <= span.ended_ms + ATTRIBUTION_WINDOW_MS
    ]
    if ended:
        return max(ended)[1]
    upcoming = [
        (span.started_ms, span.call_id)
        for span in spans
        if span.started_ms - ATTRIBUTION_WINDOW_MS <= at < span.started_ms
    ]
    return min(upcoming)[1] if upcoming else None


def only_possible_call(calls: Iterable[tuple[str, str]]) -> str | None:
    """The id of the only call (id, kind) that can change files without reporting them, if any."""
    excluded = (*READ_ONLY_KINDS, *EXPLICIT_FILE_KINDS)
    candidates = [call for call, kind in calls if kind not in excluded]
    return candidates[0] if len(candidates) == 1 else None
