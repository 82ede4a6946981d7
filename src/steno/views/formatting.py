"""Figures and judgements in words for people. What is not known is called unknown, never 0. It lays nothing out."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from ..analysis.live_state import call_target as call_target

UNKNOWN = "unknown"

# A verdict's colour, and why it was given where the run itself left no words for it.
VERDICT_DISPLAY = {
    "success": ("green", "the run finished, and the agent reports success"),
    "max_turns": ("yellow", "the limit of turns was reached before the work was done"),
    "max_budget": ("yellow", "the budget was used up before the work was done"),
    "rate_limit": ("yellow", "the service refused the run for its rate or usage limit"),
    "auth": ("red", "the service did not accept the key or the sign-in"),
    "api": ("red", "the service failed"),
    "network": ("red", "the service could not be reached"),
    "invalid_request": ("red", "the service refused the request as wrong"),
    "context_full": ("yellow", "the conversation no longer fits the model's window"),
    "refused": ("red", "the model declined"),
    "permission": ("yellow", "calls were refused, and the work stopped there"),
    "interactive": ("yellow", "the run ended with a question that nobody was there to answer"),
    "background_task": ("yellow", "the run ended before its background work did"),
    "empty": ("yellow", "the agent called it a success and gave no answer"),
    "no_result": ("yellow", "the recording ends without a result"),
    "stalled": ("red", "the run fell silent and was ended"),
    "timeout": ("red", "the run took too long and was ended"),
    "interrupted": ("yellow", "the run was interrupted"),
    "killed": ("red", "the run was ended from outside"),
    "subprocess": ("red", "the agent's program failed"),
    "not_found": ("red", "the agent's program was not found"),
}


def verdict_colour(verdict: str) -> str:
    """The colour of a verdict's severity."""
    return VERDICT_DISPLAY.get(verdict, ("red", ""))[0]


def format_number(figure: int | None) -> str:
    """A whole number with its thousands apart."""
    return UNKNOWN if figure is None else f"{figure:,}"


def format_compact(figure: int | None) -> str:
    """A whole number in few letters: 950, 12.3k, 4.56M, 1.2G."""
    if figure is None:
        return UNKNOWN
    if abs(figure) < 1000:
        return str(figure)
    for unit, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        scaled = figure / unit
        places = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
        if abs(scaled) < 999.5 or letter == "T":
            return f"{scaled:,.{places}f}{letter}"
    raise AssertionError


def format_count(figure: int, noun: str, many: str | None = None) -> str:
    """A number with its noun: 1 call, 3 calls."""
    return f"{figure:,} {noun if figure == 1 else many or noun + 's'}"


def format_percent(fraction: float | None) -> str:
    """A part of a whole."""
    return UNKNOWN if fraction is None else f"{fraction * 100:.1f} %"


def format_money(dollars: float | None) -> str:
    """Dollars, with more places the smaller the sum."""
    if dollars is None:
        return UNKNOWN
    places = 2 if abs(dollars) >= 10 or dollars == 0 else 4 if abs(dollars) >= 0.01 else 6
    return f"${dollars:,.{places}f}"


def format_duration(milliseconds: float | None) -> str:
    """A length of time."""
    if milliseconds is None:
        return UNKNOWN
    seconds = milliseconds / 1000
    if seconds < 0.9995:
        return f"{milliseconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_time(at: datetime) -> str:
    """A time in the reader's own zone; as it stands where no calendar goes that far."""
    try:
        return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (OverflowError, ValueError, OSError):
        return str(at)


def format_epoch(seconds: int) -> str:
    """Seconds since 1970 as a time in the reader's own zone."""
    try:
        return format_time(datetime.fromtimestamp(seconds).astimezone())
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"


def strip_tag(text: str) -> str:
    """An error text without the tag that some agents put around it."""
    return re.sub(r"^\s*<\w+>|</\w+>\s*$", "", text) if "<" in text else text


EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉"
SPARK_BLOCKS = "▁▂▃▄▅▆▇█"


def bar(part: float, whole: float, columns: int) -> str:
    """A bar that is `columns` long for the whole. What is more than nothing shows at least as a sliver."""
    if part <= 0 or whole <= 0:
        return ""
    eighths = max(1, round(min(1.0, part / whole) * columns * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (EIGHTH_BLOCKS[rest] if rest else "")


def gauge(fraction: float, columns: int) -> str:
    """A bar with its empty part."""
    full = min(columns, round(max(0.0, fraction) * columns))
    full = 1 if fraction > 0 and not full else full
    return "█" * full + "░" * (columns - full)


def sparkline(values: Sequence[float], columns: int | None = None) -> str:
    """The course of some figures, one letter each (or the highest of several, where there is not the room)."""
    shown = (
        list(values) if columns is None or len(values) <= columns else downsample(values, columns)
    )
    top = max(shown, default=0)
    if top <= 0:
        return SPARK_BLOCKS[0] * len(shown)
    return "".join(SPARK_BLOCKS[min(7, int(max(0.0, value) / top * 7.999))] for value in shown)


def downsample(values: Sequence[float], columns: int) -> list[float]:
    """As many figures as there are columns, each the highest of its share."""
    edges = [at * len(values) // columns for at in range(columns + 1)]
    return [max(values[low:high]) for low, high in pairwise(edges)]
