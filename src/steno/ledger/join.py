"""Join what several witnesses say about one session. Pure.

The rules are in docs/reference/ledger.md. Each request is one row, whichever files show it. A run's
total that exceeds its requests adds the difference; so does a running total of the session. Nothing
is subtracted, and the result does not depend on the order in which the files were read.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from .assign import Gap, assign_requests, find_copies
from .rows import RequestRow
from .run_totals import adjust_run, settle_costs
from .running_totals import add_session_totals
from .witnesses import COUNTERS, Adjustment, Joined, Witnesses


def join(known: Witnesses) -> Joined:
    """Assign the requests to runs, and find what the totals have beyond them."""
    joined = Joined()
    if known.has_own_ids:
        joined.copies = find_copies(known)
        rest = [row for row in known.requests if row.id not in joined.copies]
        known = replace(known, requests=rest)
    gaps = {total.run: Gap(total) for total in known.runs}
    for request in known.requests:
        if request.shown in gaps:
            joined.runs[request.id] = request.shown
            gaps[request.shown].take(request)
    assign_requests(known, gaps, joined)
    own_requests: dict[str, list[RequestRow]] = {run: [] for run in gaps}
    for request in (*known.requests, *known.strangers):
        if request.id in joined.runs:
            own_requests[joined.runs[request.id]].append(request)
    for total in known.runs:
        if not total.is_session:
            requests = own_requests[total.run]
            settle_costs(total, requests, joined)
            joined.adjustments += adjust_run(total, requests, joined.costs)
            if not total.is_partial:
                joined.covered |= {request.id for request in requests}
    add_session_totals(known, joined)
    joined.adjustments = _merged(joined.adjustments)
    return joined


def _merged(parts: Iterable[Adjustment]) -> list[Adjustment]:
    """One adjustment per run and model; of the session's own totals, one per time and model."""
    found: dict[tuple[object, str], Adjustment] = {}
    for part in parts:
        if not part.changes_a_sum:
            continue
        known = found.setdefault((part.run or part.at, part.model), part)
        if known is part:
            continue
        for name in (*COUNTERS, "requests"):
            setattr(known, name, getattr(known, name) + getattr(part, name))
        if known.cost_nano is not None or part.cost_nano is not None:
            known.cost_nano = (known.cost_nano or 0) + (part.cost_nano or 0)
        known.at = max(known.at, part.at)
        known.is_partial = known.is_partial or part.is_partial
    return list(found.values())
