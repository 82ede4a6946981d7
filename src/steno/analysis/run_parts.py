"""Several runs in one stream, such as recordings that were joined: their results and requests.

Totals of Claude Code count per process, since 2.1.277 over a resumed session, and never over other
sessions. A process may have several results: after each prompt on stdin, and after background work.
"""

import copy
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from .. import event as ev
from .accumulator import Accumulator, RunStart
from .usage import TOKEN_COUNTERS, context_tokens, is_single_turn, sum_tokens

Mark = RunStart | ev.Result


def split_runs(run: Accumulator) -> list[Accumulator]:
    """One accumulator for each run of the stream, with its results, requests and earlier totals.

    The accumulator itself if there is one run, which is the usual case.
    """
    starts = _starts_of_later_runs(run)
    if not starts:
        return [run]
    parts = [_empty_part(run) for _ in range(len(starts) + 1)]
    for key, request in run.requests.items():
        part = parts[bisect_right(starts, request.line)]
        part.requests[key] = request
        if request.parent is None:
            part.main_keys.append(key)
            part.main_request = request
    for result_key, result in run.results_by_key.items():
        parts[bisect_right(starts, result.line)].results_by_key[result_key] = result
    parts[0].earlier_totals = run.earlier_totals
    for before, part in pairwise(parts):
        part.earlier_totals = _totals_of(before, part)
    return [part for part in parts if part.requests or part.results]


def _empty_part(run: Accumulator) -> Accumulator:
    part = copy.copy(run)
    part.requests = {}
    part.main_keys = []
    part.main_request = None
    part.results_by_key = {}
    part.unmeasured_requests = 0
    return part


def _starts_of_later_runs(run: Accumulator) -> list[int]:
    """The first line of each run but the first."""
    results = list(run.results)
    if len(results) + len(run.starts) < 2 or len(results) == 1 == len(_sessions(run)):
        return []
    others: set[int] = set()
    marks: list[Mark] = sorted([*run.starts, *results], key=lambda event: event.line)
    for before, after in pairwise(marks):
        if before.session != after.session and None not in (before.session, after.session):
            is_start = isinstance(after, RunStart)
            others.add(after.line if is_start else _first_line(run, before, after))
    lines = [start.line for start in run.starts]
    same_process: list[tuple[int, int]] = []  # from a result to the next
    for first, second in pairwise(results):
        if _is_numbered_on(first, second):
            same_process.append((first.line, second.line))
        elif first.session == second.session:
            begun = lines[bisect_right(lines, first.line) : bisect_right(lines, second.line)]
            if (begun or not lines) and _is_other_run(first, second):
                others.add(begun[0] if begun else second.line)
    return sorted(
        line for line in others if not any(begin < line <= end for begin, end in same_process)
    )


def _sessions(run: Accumulator) -> set[str | None]:
    marks: list[Mark] = [*run.starts, *run.results]
    return {mark.session for mark in marks} - {None}


def _is_numbered_on(first: ev.Result, second: ev.Result) -> bool:
    """Whether two results are of one process: each numbers its results from 0."""
    if first.index is None or second.index is None or first.session != second.session:
        return False
    return second.index > first.index


def _first_line(run: Accumulator, before: Mark, after: Mark) -> int:
    """The first line of a run that is not announced, such as a result alone."""
    lines = (
        request.line
        for request in run.requests.values()
        if before.line < request.line < after.line and request.session == after.session
    )
    return min(lines, default=after.line)


def _is_other_run(before: ev.Result, after: ev.Result) -> bool:
    """Whether two results of one session are those of two processes."""
    if before.index is not None or after.index is not None:
        return True
    if _costs_less(after, before):
        return True
    if before.models is None or after.models is None:
        return (before.models is None) is not (after.models is None)
    return not continues(before.models, after)


def _costs_less(after: ev.Result, before: ev.Result) -> bool:
    if after.cost_nano is None or before.cost_nano is None:
        return False
    return after.cost_nano < before.cost_nano


def continues(earlier: dict[str, ev.ModelUsage], result: ev.Result) -> bool:
    """Whether the totals of a result include those from before, and its own usage."""
    models = result.models or {}
    for name, share in earlier.items():
        later = models.get(name)
        if later is None:
            return False
        for counter in (*TOKEN_COUNTERS, "cost_nano"):
            if (getattr(later, counter) or 0) < (getattr(share, counter) or 0):
                return False
    total, known = (sum_tokens(part.values()).total or 0 for part in (models, earlier))
    own = 0 if result.usage is None else sum_tokens([result.usage]).total or 0
    if total == known:  # two results at the same time, unless the same was used again
        return own < total
    return total - known >= own


def _totals_of(before: Accumulator, part: Accumulator) -> ev.CostState | None:
    """The totals of the session before this part, if the part before shows them.

    They do not if runs between the two are missing: their usage would be taken for this part's.
    """
    last = before.last_result
    own = part.last_result
    if last is None or own is None or last.session != own.session or last.models is None:
        return None
    if not continues(last.models, next(iter(part.results))):
        return None
    added = _input_of((own.models or {}).values()) - _input_of(last.models.values())
    if part.requests and added > _input_of(part.requests.values()):
        return None
    if is_single_turn(own) and own.usage is not None and added > _input_of([own.usage]):
        return None
    # The line says that it is not from a transcript, which has all runs.
    head = (last.line, last.session, None, None)
    return ev.CostState(*head, last.cost_nano, last.models, is_earlier=True)


def _input_of(shares: Iterable[Any]) -> int:
    return context_tokens(sum_tokens(shares)) or 0
