"""Pictures made of letters: bars and sparklines. Figures in, text out; an ASCII terminal gets other letters later."""

from collections.abc import Sequence
from itertools import pairwise

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
    shown = list(values) if columns is None or len(values) <= columns else downsample(values, columns)
    top = max(shown, default=0)
    if top <= 0:
        return SPARK_BLOCKS[0] * len(shown)
    return "".join(SPARK_BLOCKS[min(7, int(max(0.0, value) / top * 7.999))] for value in shown)


def downsample(values: Sequence[float], columns: int) -> list[float]:
    """As many figures as there are columns, each the highest of its share."""
    edges = [at * len(values) // columns for at in range(columns + 1)]
    return [max(values[low:high]) for low, high in pairwise(edges)]
