"""What the running totals of a session have beyond its requests and the totals of its runs. Pure.

Claude Code writes one at the end of each process, unless it is killed: its requests are in none.
"""

from collections.abc import Sequence
from itertools import accumulate

from msgspec.structs import replace

from .rows import RequestRow
from .run_totals import split_difference, weight_of
from .witnesses import (
    COUNTERS,
    INPUT_COLUMNS,
    RUN_SLACK_MS,
    Adjustment,
    Checkpoint,
    Joined,
    RunTotal,
    Share,
    Witnesses,
    add_inputs,
    as_row,
    inputs_of,
    sum_rows,
)


def add_session_totals(known: Witnesses, joined: Joined) -> None:
    """Add what running totals have beyond the requests and adjustments that they include."""
    runs = {total.run: total for total in known.runs}
    points = [
        Checkpoint(
            total.ended_at if total.is_timed else total.ended_at + RUN_SLACK_MS,
            total.total,
            total.models,
            total.run,
        )
        for total in known.runs
        if total.is_session
    ]
    for point in known.checkpoints:
        run = runs.get(point.run or "")
        if run is not None and run.needs_session_total and _has_earlier(known, joined, run):
            points.append(replace(point, at=_end_of(run, known, joined)))
        elif point.run is None:
            points.append(point)
    points.sort(key=lambda point: (point.total.cost_nano or 0, weight_of(point.total), point.at))
    previous = known.base or Checkpoint(-1, Share(0, 0, 0, 0, 0, 0), {})
    counted = {row.id for row in known.requests if row.at <= previous.at}
    for point in points:
        _add_session_total(known, joined, previous, point, counted)
        previous = point


def _has_earlier(known: Witnesses, joined: Joined, run: RunTotal) -> bool:
    """Whether a run's total of the session can be separated from its own part.

    With its own requests alone, they are a lower bound of it. Without any request, the total is an
    upper bound.
    """
    own = [row for row in known.requests if joined.runs.get(row.id) == run.run]
    others = len(known.requests) > len(own) or len(known.runs) > 1 or known.inherited
    return not own or bool(others)


def _end_of(run: RunTotal, known: Witnesses, joined: Joined) -> int:
    """The time of a run's last request, or of its end if it has none."""
    own = [row.at for row in known.requests if joined.runs.get(row.id) == run.run]
    return max(own, default=run.ended_at)


def _add_session_total(
    known: Witnesses,
    joined: Joined,
    previous: Checkpoint,
    point: Checkpoint,
    counted: set[int],
) -> None:
    """Compare the growth since the running total before with what was counted since then."""
    growth, models = _growth(previous, point)
    adjustments = _adjustments_until(known, joined, point, counted, growth)
    rows = list(map(as_row, adjustments))
    requests = _until(known, joined, point, counted, growth, rows)
    rows += requests
    counted |= {row.id for row in requests} | {id(part) for part in adjustments}
    main = next((run.main_model for run in known.runs if run.run == point.run), None)
    place = Adjustment(point.run or _run_before(known, point.at), main or "", point.at)
    parts = split_difference(growth, models, rows, joined.costs, place)
    if parts and point.requests is not None:
        listed = sum(row.requests for row in rows)
        parts[0].requests = max(0, point.requests - (previous.requests or 0) - listed)
    joined.adjustments += parts
    counted |= {id(part) for part in parts}
    joined.covered |= {row.id for row in requests}


def _adjustments_until(
    known: Witnesses, joined: Joined, point: Checkpoint, counted: set[int], growth: Share
) -> list[Adjustment]:
    """The adjustments of runs that had started; where a run's time is unknown, those that fit."""
    starts = {run.run: run.started_at for run in known.runs}
    own = _by_run(known, joined)
    untimed = {run.run for run in known.runs if not run.is_timed and run.run not in own}
    for run, rows in own.items():
        starts[run or ""] = min(row.at for row in rows)
    found: list[Adjustment] = []
    for part in joined.adjustments:
        if id(part) in counted:
            continue
        if part.run in untimed:
            sums = sum_rows(map(as_row, [*found, part]))
            limits = [(getattr(growth, name), sums[name]) for name in INPUT_COLUMNS]
            if all(limit is None or count <= limit for limit, count in limits):
                found.append(part)
        elif (
            part.at <= point.at
            or starts.get(part.run or "", part.at) < point.at
            or (part.run in own and starts[part.run or ""] == point.at)
        ):
            found.append(part)
    return found


def _by_run(known: Witnesses, joined: Joined) -> dict[str | None, list[RequestRow]]:
    found: dict[str | None, list[RequestRow]] = {}
    for row in known.requests:
        if row.id in joined.runs:
            found.setdefault(joined.runs[row.id], []).append(row)
    return found


def _until(
    known: Witnesses,
    joined: Joined,
    point: Checkpoint,
    counted: set[int],
    growth: Share,
    rows: Sequence[RequestRow],
) -> list[RequestRow]:
    """The requests that a running total includes: those before it, and its run's own.

    Claude Code leaves interrupted requests out of those in its files (seen in 2.1.327).

    Requests at the very time of the total are included as far as it has them: the next run may
    have started in the same millisecond.
    """
    waiting = sorted(
        (
            row
            for row in (*known.requests, *known.inherited)
            if row.id not in counted and (row.final or point.run is not None)
        ),
        key=lambda row: (row.at, row.id),
    )
    block = _exact_growth(waiting, growth, rows)
    if block:
        return block
    later_main = min(
        (row.at for row in waiting if row.parent is None and row.at > point.at), default=None
    )
    found = []
    ties = []
    for row in waiting:
        run = joined.runs.get(row.id)
        if (
            (point.run is not None and run == point.run)
            or row.at < point.at
            or (row.parent is not None and (later_main is None or row.at < later_main))
        ):
            found.append(row)
        elif row.at == point.at:
            ties.append(row)
    fitting: list[RequestRow] = []
    for row in ties:
        sums = sum_rows([*rows, *found, *fitting, row])
        limits = ((getattr(growth, name), sums[name]) for name in INPUT_COLUMNS)
        if all(limit is None or count <= limit for limit, count in limits):
            fitting.append(row)
    return [*found, *(fitting or ties)]


def _exact_growth(
    waiting: Sequence[RequestRow], growth: Share, rows: Sequence[RequestRow]
) -> list[RequestRow]:
    """Consecutive requests that make up the growth; those before them are in no running total.

    A process that is killed writes none, and the next one continues from the one before it.
    """
    sums = sum_rows(rows)
    wanted = tuple((getattr(growth, name) or 0) - sums[name] for name in INPUT_COLUMNS)
    if min(wanted) < 0 or not any(wanted):
        return []
    totals = [(0, 0, 0), *accumulate((inputs_of(row) for row in waiting), add_inputs)]
    places = {total: index for index, total in enumerate(totals)}
    for start, total in enumerate(totals[:-1]):
        end = places.get(add_inputs(total, wanted), 0)
        if end > start:
            return list(waiting[start:end])
    return []


def _growth(previous: Checkpoint, point: Checkpoint) -> tuple[Share, dict[str, Share]]:
    models = {
        name: _difference(share, previous.models.get(name)) for name, share in point.models.items()
    }
    return _difference(point.total, previous.total), models


def _difference(share: Share, before: Share | None) -> Share:
    if before is None:
        return share
    values = {}
    for name in (*COUNTERS, "cost_nano"):
        total = getattr(share, name)
        values[name] = None if total is None else max(0, total - (getattr(before, name) or 0))
    return Share(**values)


def _run_before(known: Witnesses, at: int) -> str | None:
    """The run that wrote a running total: the last one that started before it."""
    started = [run for run in known.runs if run.started_at < at and not run.is_session]
    latest = max(started, key=lambda run: (run.started_at, run.run), default=None)
    if latest is None or at > latest.ended_at + RUN_SLACK_MS:
        return None
    return latest.run
