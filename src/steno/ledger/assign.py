"""Assign requests that only other files show to the runs whose totals have room for them. Pure."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from .rows import RequestRow
from .witnesses import (
    INPUT_COLUMNS,
    RUN_SLACK_MS,
    TOKEN_COLUMNS,
    UNTIMED_MS,
    Joined,
    RunTotal,
    Witnesses,
    add_inputs,
    inputs_of,
)


def find_copies(known: Witnesses) -> dict[int, int]:
    """The requests that a run shows too: with the same input, at the time of the run."""
    times = {run.run: run for run in known.runs}
    waiting: dict[tuple[str, int, int, int], list[RequestRow]] = {}
    for row in sorted(known.requests, key=lambda row: (row.at, row.id), reverse=True):
        if row.shown is None:
            waiting.setdefault((row.model, *inputs_of(row)), []).append(row)
    copies: dict[int, int] = {}
    for row in sorted(known.requests, key=lambda row: (row.at, row.id)):
        run = times.get(row.shown or "")
        if run is None:
            continue
        others = waiting.get((row.model, *inputs_of(row)), [])
        slack = RUN_SLACK_MS if run.is_timed else UNTIMED_MS
        near = [
            other
            for other in others
            if run.started_at - slack <= other.at <= run.ended_at + RUN_SLACK_MS
        ]
        if near:
            copies[near[-1].id] = row.id
            others.remove(near[-1])
    return copies


class Gap:
    """What a run's total has beyond the requests assigned to it."""

    def __init__(self, total: RunTotal) -> None:
        self.total = total
        self.left = {
            name: getattr(total.total, name)
            for name in TOKEN_COLUMNS
            if getattr(total.total, name) is not None
        }
        self._models = {
            model: {
                name: getattr(share, name)
                for name in TOKEN_COLUMNS
                if getattr(share, name) is not None
            }
            for model, share in total.models.items()
        }
        self.window: list[int] = []  # times of its requests

    @property
    def is_open(self) -> bool:
        """Whether it has room for another request."""
        return (
            self.total.cost_source == "local"
            or not self.left
            or any(count > 0 for count in self.left.values())
        )

    def take(self, request: RequestRow) -> None:
        for part in self._parts(request.model):
            for name in part:
                part[name] -= getattr(request, name)
        self.window.append(request.at)

    def fits(self, request: RequestRow) -> bool:
        """Whether the run's total would still cover all of its requests; free ones it need not."""
        if self.total.cost_source == "local":
            return True
        if not self.left:
            return False
        if self._models and self._model_part(request.model) is None:
            return False
        parts = self._parts(request.model)
        return all(part[name] >= getattr(request, name) for part in parts for name in part)

    def _parts(self, model: str) -> list[dict[str, int]]:
        part = self._model_part(model)
        return [self.left] if part is None else [self.left, part]

    def _model_part(self, model: str) -> dict[str, int] | None:
        if len(self._models) == 1:  # the service may call it differently than the request did
            return next(iter(self._models.values()))
        return self._models.get(model)

    def distance(self, at: int) -> int | None:
        """Milliseconds between a time and the run; None if the run's times are unknown.

        No request is before the start that steno saw. The end may be that of the agent's last line.
        """
        times = self.window
        if self.total.is_timed:
            times = [self.total.started_at, self.total.ended_at, *times]
        if not times:
            return None
        if self.total.is_own_recording and at < min(times):
            return RUN_SLACK_MS + 1
        return max(min(times) - at, at - max(times), 0)


def assign_requests(known: Witnesses, gaps: dict[str, Gap], joined: Joined) -> None:
    """Assign requests that only other files show: to a run whose total has room for them."""
    waiting = sorted(
        (request for request in known.requests if request.id not in joined.runs),
        key=lambda request: (request.at, request.id),
    )
    open_gaps = [gap for gap in gaps.values() if gap.left and not gap.total.is_session]
    if not open_gaps or not (waiting or known.strangers):
        return

    def put(request: RequestRow, gap: Gap) -> None:
        joined.runs[request.id] = gap.total.run
        gap.take(request)

    for gap in sorted(open_gaps, key=_order):
        for request in _exact_block(waiting, gap) or _exact_stranger(known.strangers, gap):
            put(request, gap)
        waiting = [request for request in waiting if request.id not in joined.runs]
    subagents = {row.session for row in known.strangers if row.parent is not None}
    subagents -= {row.session for row in known.strangers if row.parent is None}
    waiting += [row for row in known.strangers if row.session in subagents]
    waiting = [request for request in waiting if request.id not in joined.runs]
    for slack in (0, RUN_SLACK_MS):
        for request in waiting:
            near = [
                (distance, *_order(gap), gap)
                for gap in open_gaps
                if (distance := gap.distance(request.at)) is not None and distance <= slack
            ]
            for *_, gap in sorted(near, key=lambda place: place[:-1]):
                if gap.is_open and gap.fits(request):
                    put(request, gap)
                    break
        waiting = [request for request in waiting if request.id not in joined.runs]
    untimed = [gap for gap in open_gaps if gap.distance(0) is None]
    for gap in sorted(untimed, key=_order):
        for request in waiting:
            if request.id not in joined.runs and gap.is_open and gap.fits(request):
                put(request, gap)


def _exact_stranger(strangers: Sequence[RequestRow], gap: Gap) -> list[RequestRow]:
    """The same among the requests of one other session, such as the copies in a fork."""
    by_session: dict[str, list[RequestRow]] = {}
    for row in sorted(strangers, key=lambda row: (row.at, row.id)):
        by_session.setdefault(row.session, []).append(row)
    blocks = (_exact_block(rows, gap) for _, rows in sorted(by_session.items()))
    return next(filter(None, blocks), [])


def _order(gap: Gap) -> tuple[int, int, str]:
    return (gap.total.ended_at, gap.total.started_at, gap.total.run)


def _exact_block(waiting: Sequence[RequestRow], gap: Gap) -> list[RequestRow]:
    """Consecutive requests that make up exactly what the run's total has left, near in time."""
    if not gap.is_open or None in (gap.left.get(name) for name in INPUT_COLUMNS):
        return []
    wanted = tuple(gap.left[name] for name in INPUT_COLUMNS)
    if not any(wanted):
        return []
    models = gap.total.models
    rows = [row for row in waiting if not models or len(models) == 1 or row.model in models]
    if gap.total.is_timed:
        rows = [row for row in rows if (gap.distance(row.at) or 0) <= RUN_SLACK_MS]
    sums = [(0, 0, 0), *accumulate((inputs_of(row) for row in rows), add_inputs)]
    places = {total: index for index, total in enumerate(sums)}
    found: list[list[RequestRow]] = []
    for start, total in enumerate(sums[:-1]):
        end = places.get(add_inputs(total, wanted), 0)
        if end > start and _outputs_fit(rows[start:end], gap):
            found.append(rows[start:end])
    return min(found, key=lambda block: abs(block[-1].at - gap.total.ended_at), default=[])


def _outputs_fit(rows: Iterable[RequestRow], gap: Gap) -> bool:
    left = gap.left.get("output")
    return left is None or sum(row.output for row in rows) <= left
