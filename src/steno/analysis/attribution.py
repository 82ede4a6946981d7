"""Attribution of file changes seen on disk or by git to the tool call that was running. Pure."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

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


class RunningWriters(Generic[C]):
    """The running calls, by id, that may have made a change no call reported.

    Calls that don't report their files (a shell command) come before those that do.
    """

    def __init__(self) -> None:
        # Ordered: the ends of a plain dict are found slowly if many entries were deleted.
        self._without_files: OrderedDict[str, C] = OrderedDict()
        self._with_files: OrderedDict[str, C] = OrderedDict()

    def add(self, id_: str, call: C) -> None:
        if call.kind in EXPLICIT_FILE_KINDS:
            self._with_files[id_] = call
        elif call.kind not in READ_ONLY_KINDS:
            self._without_files[id_] = call

    def discard(self, id_: str) -> None:
        self._without_files.pop(id_, None)
        self._with_files.pop(id_, None)

    def newest(self) -> C | None:
        return next(reversed(self._likely.values()), None)

    def only(self) -> C | None:
        """The only one; None if several can have made the change."""
        return next(iter(self._likely.values())) if len(self._likely) == 1 else None

    @property
    def _likely(self) -> OrderedDict[str, C]:
        return self._without_files or self._with_files


class CallTimes:
    """When the calls ran that can change files: looks up thousands of changes among as many."""

    def __init__(self, spans: Iterable[CallSpan]) -> None:
        writers = [span for span in spans if span.kind not in READ_ONLY_KINDS]
        self._running = _RunningSpans(writers)
        self._running_likely = _RunningSpans(
            [span for span in writers if span.kind not in EXPLICIT_FILE_KINDS]
        )
        self._starts = sorted((span.started_ms, span.call_id) for span in writers)
        self._ends = sorted((span.ended_ms, span.call_id) for span in writers)
        self._start_times = [time for time, _ in self._starts]
        self._end_times = [time for time, _ in self._ends]

    def call_at(self, at: float) -> str | None:
        """The only likely writer running then; else one that ran just before or just after."""
        for spans in (self._running_likely, self._running):
            count = spans.count_at(at)
            if count:
                return spans.only_at(at).call_id if count == 1 else None
        ended = bisect_right(self._end_times, at)
        if ended and at <= self._end_times[ended - 1] + ATTRIBUTION_WINDOW_MS:
            return self._ends[ended - 1][1]
        started = bisect_right(self._start_times, at)
        if started < len(self._starts) and self._start_times[started] - ATTRIBUTION_WINDOW_MS <= at:
            return self._starts[started][1]
        return None


class _RunningSpans:
    """How many spans contain a time, and which one if only one does."""

    def __init__(self, spans: Sequence[CallSpan]) -> None:
        self._spans = spans
        starts = sorted((span.started_ms, number) for number, span in enumerate(spans))
        ends = sorted((span.ended_ms, number) for number, span in enumerate(spans))
        self._start_times = [time for time, _ in starts]
        self._end_times = [time for time, _ in ends]
        # Sums of the numbers: that of the started less that of the ended is the only one's number.
        self._start_sums = list(accumulate((number for _, number in starts), initial=0))
        self._end_sums = list(accumulate((number for _, number in ends), initial=0))

    def count_at(self, at: float) -> int:
        return bisect_right(self._start_times, at) - bisect_left(self._end_times, at)

    def only_at(self, at: float) -> CallSpan:
        started = self._start_sums[bisect_right(self._start_times, at)]
        return self._spans[started - self._end_sums[bisect_left(self._end_times, at)]]


def only_possible_call(calls: Iterable[tuple[str, str]]) -> str | None:
    """The id of the only call (id, kind) that can change files without reporting them, if any."""
    excluded = (*READ_ONLY_KINDS, *EXPLICIT_FILE_KINDS)
    candidates = [call for call, kind in calls if kind not in excluded]
    return candidates[0] if len(candidates) == 1 else None
