"""The token counts of a rollout: which line is a request, and whether they make up its total. Pure.

A `token_count` line has the usage of the last request and the total so far. Versions up to 0.42
write one for each request, before the items of its response. Those from 0.44 to 0.115 also repeat
the last count when the next response begins; at the start of a thread it has no figures. Up to
0.58 each process counts from zero; later ones continue the total of the thread, also of the one
that it was forked from. From 0.142 on nothing is repeated; from 0.166 on each request has a line of
its own (`token_usage_record`) before its count.
"""

import re

from msgspec import Struct

from ...event import Usage
from .wire import TokenCountInfo, TokenUsage

_FIRST_REPEATING_VERSION = (0, 44)


class TotalsState(Struct):
    """What is known of the totals so far. Stored in the ledger: field names stay.

    A total may start again at zero: `base` is what the current one began with, `closed` the sum of
    the finished ones, `measured` that of the requests in all of them.
    """

    total: int | None = None  # by the last count
    is_counted: bool = False  # there was a count, with or without figures
    restarts: int = 0
    base: int = 0
    closed: int = 0
    measured: int = 0
    difference: int = 0  # that was last reported


def token_sum(usage: TokenUsage | None) -> int | None:
    """All tokens of a usage. The total of some versions is that of a full window, without parts."""
    if usage is None:
        return None
    if usage.input_tokens is None:
        return usage.total_tokens
    return usage.input_tokens + (usage.output_tokens or 0)


def add_count(
    state: TotalsState,
    info: TokenCountInfo,
    version: str | None,
    *,
    recorded: bool = False,
    answered: bool = False,
    from_zero: bool = False,
) -> bool:
    """Add a count and return whether it is a request that is not known yet.

    `recorded`: its request had a line of its own. `answered`: the model has sent something since
    the last count, so that this one is no repetition. `from_zero`: the lines begin with the thread,
    so that its total has no part that they lack.
    """
    total = token_sum(info.total_token_usage)
    last = token_sum(info.last_token_usage) or 0
    repeats = _repeats_counts(version)
    if total is None:
        if state.total is not None:
            _restart(state)
        state.is_counted = True
        return last > 0 and not recorded
    if state.total is None:
        is_certain = recorded or answered or state.is_counted or from_zero
        # Of an unknown version, a count that is all of the total is the first one of a thread.
        is_new = is_certain or repeats is False or (repeats is None and total == last)
        if not state.restarts:
            state.base = max(0, total - last) if is_new else total
        if from_zero:
            state.base = 0
    else:
        is_first = total == last and repeats is False  # of a process
        is_new = is_first or total != state.total
        if is_first or total < state.total:
            _restart(state)
    state.is_counted = True
    state.total = total
    if is_new and not recorded:
        state.measured += last
    return is_new and not recorded


def _restart(state: TotalsState) -> None:
    state.closed += (state.total or 0) - state.base
    state.total = None
    state.base = 0
    state.restarts += 1


def _repeats_counts(version: str | None) -> bool | None:
    """Whether a version repeats counts; None if it is unknown (0.0.0 is a build of one's own)."""
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if match is None or match[0] == "0.0":
        return None
    return (int(match[1]), int(match[2])) >= _FIRST_REPEATING_VERSION


def add_record(state: TotalsState, usage: TokenUsage | None) -> None:
    """Add a request that has a line of its own."""
    state.measured += token_sum(usage) or 0


def forget_requests(state: TotalsState) -> None:
    """Leave out what was counted so far: it belongs to another thread."""
    state.base = state.total or 0
    state.closed = 0
    state.measured = 0


def tokens_of(request: Usage) -> int:
    """All tokens of a request."""
    parts = (request.input, request.cache_write, request.cache_read, request.output)
    return sum(part or 0 for part in parts)


def describe_difference(measured: int, total: int) -> str:
    """What to warn of if the requests do not make up the total; empty if they do."""
    if measured == total:
        return ""
    return f"the requests add up to {measured:,} tokens, the session's own total is {total:,}"


def describe_change(state: TotalsState) -> str | None:
    """The same for a state, None if nothing has changed since the last call."""
    if state.total is None:
        return None
    total = state.closed + state.total - state.base
    difference = total - state.measured
    if difference == state.difference:
        return None
    state.difference = difference
    return describe_difference(state.measured, total)
