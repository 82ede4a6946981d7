"""One thing that several lines tell: a request, what an agent works with. What is known of it then. Pure."""

from typing import Any

import msgspec

from . import event as ev


def merge_usage(known: ev.Usage, told: ev.Usage) -> ev.Usage:
    """One request, told by two lines (M2): a counter only ever grows, and the first line is its place."""
    return msgspec.structs.replace(
        known,
        model=known.model or told.model,
        input=larger_count(known.input, told.input),
        cache_write=larger_count(known.cache_write, told.cache_write),
        cache_read=larger_count(known.cache_read, told.cache_read),
        output=larger_count(known.output, told.output),
        reasoning=larger_count(known.reasoning, told.reasoning),
        cache_write_1h=larger_count(known.cache_write_1h, told.cache_write_1h),
        final=known.final or told.final,
    )


def larger_count(known: int | None, told: int | None) -> int | None:
    if known is None or (told is not None and told > known):
        return told
    return known


def context_tokens(request: ev.Usage) -> int | None:
    """What the window held when a request was sent (M3)."""
    if request.input is None or request.cache_write is None or request.cache_read is None:
        return None
    return request.input + request.cache_write + request.cache_read


def merge_started(known: ev.Started, told: ev.Started) -> ev.Started:
    """What was said first of what the agent works with, and what that left out."""
    names = ("agent_version", "model", "cwd", "permission_mode", "context_window")
    left: Any = {name: getattr(told, name) for name in names if getattr(known, name) is None}
    return msgspec.structs.replace(known, **left)
