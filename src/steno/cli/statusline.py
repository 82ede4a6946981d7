"""`steno statusline`: prints the line below Claude Code's prompt, from the JSON on stdin.

Imports as little as possible: Claude Code runs it several times a minute.
"""

import json
import os
import sys
import time

from ..ledger.quick import QuickLedger, open_quick_ledger
from ..views.formatting import clean, format_compact, gauge
from .bounded_input import read_bounded

TYPE_CHECKING = False  # importing `typing` would cost 4 ms
if TYPE_CHECKING:
    from typing import Any

MAX_INPUT_BYTES = 1 << 20
MAX_NAME_CHARS = 30
GAUGE_COLUMNS = 8
DAY_SECONDS = 86_400
WINDOWS = {"five_hour": "5h", "seven_day": "7d"}
GREEN, YELLOW, RED, DIM = "32", "33", "31", "2"
# Context: the thresholds of warnings. Limits and budgets: a fifth left, and nearly none.
CONTEXT_LEVELS = (0.7, 0.95)
LIMIT_LEVELS = (0.8, 0.95)


def run(args: list[str]) -> int:
    """Run `steno statusline` and return its exit code."""
    if args:
        from .statusline_setup import run_setup

        return run_setup(args)
    if sys.stdin is None or sys.stdin.isatty():
        return _fail("expects the JSON of Claude Code on stdin; to set it up: --install")
    try:
        status = json.loads(read_bounded(sys.stdin.fileno(), MAX_INPUT_BYTES))
    except ValueError:
        status = None
    if not isinstance(status, dict):
        return _fail("expected a JSON object on stdin, as Claude Code writes it")
    sys.stdout.buffer.write(status_line(status, time.time()).encode("utf-8", "replace") + b"\n")
    return 0


def _fail(reason: str) -> int:
    from .terminal import print_error

    print_error(f"statusline: {reason}")
    return 2


def status_line(status: "dict[str, Any]", now: float) -> str:
    """The line, and as a side effect the observed limits in the ledger."""
    session_usd = _number(status, "cost", "total_cost_usd")
    limits = _limits(status)
    parts = [_model(status), _context(status)]
    parts += [_limit(window, used, resets_at, now) for window, (used, resets_at) in limits.items()]
    if session_usd is not None:
        parts.append(f"{_money(session_usd)} session")
    ledger = open_quick_ledger()
    if ledger is not None:
        with ledger as quick:
            parts += _spending(quick, status, session_usd, now)
            quick.store_limits("claude", limits)
    return _dim(" · ").join(part for part in parts if part)


# -- values: a field of the wrong type counts as missing ------------------------------------------


def _value(status: "Any", *names: str) -> "Any":
    for name in names:
        status = status.get(name) if isinstance(status, dict) else None
    return status


def _number(status: "Any", *names: str) -> float | None:
    value = _value(status, *names)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1e15 else None


def _limits(status: "dict[str, Any]") -> dict[str, tuple[float, int | None]]:
    found = {}
    for window in WINDOWS:
        used = _number(status, "rate_limits", window, "used_percentage")
        resets_at = _number(status, "rate_limits", window, "resets_at")
        if used is not None:
            is_time = resets_at is not None and resets_at < 253_402_300_800  # the year 10000
            found[window] = (used / 100, int(resets_at or 0) if is_time else None)
    return found


# -- parts of the line ----------------------------------------------------------------------------


def _paint(text: str, code: str) -> str:
    return text if os.environ.get("NO_COLOR") else f"\x1b[{code}m{text}\x1b[0m"


def _money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.005 or not usd else "<$0.01"


def _dim(text: str) -> str:
    return _paint(text, DIM)


def _level_colour(fraction: float, levels: tuple[float, float]) -> str:
    if fraction >= levels[1]:
        return RED
    return YELLOW if fraction >= levels[0] else GREEN


def _model(status: "dict[str, Any]") -> str:
    name = _value(status, "model", "display_name")
    return clean(name[:MAX_NAME_CHARS].replace("\n", " ")) if isinstance(name, str) else ""


def _context(status: "dict[str, Any]") -> str:
    size = _number(status, "context_window", "context_window_size")
    used = _number(status, "context_window", "total_input_tokens")
    if not size or used is None:
        return ""
    fraction = used / size
    bar = _paint(gauge(fraction, GAUGE_COLUMNS), _level_colour(fraction, CONTEXT_LEVELS))
    return f"context {bar} {fraction:.0%} {_dim(f'of {format_compact(int(size))}')}"


def _limit(window: str, used: float, resets_at: int | None, now: float) -> str:
    text = _paint(f"{used:.0%}", _level_colour(used, LIMIT_LEVELS))
    if resets_at is None or resets_at <= now:
        return f"{WINDOWS[window]} {text}"
    day = "%H:%M" if resets_at - now < DAY_SECONDS else "%a %H:%M"
    reset = time.strftime(day, time.localtime(resets_at))
    return f"{WINDOWS[window]} {text} {_dim(f'until {reset}')}"


def _spending(
    ledger: QuickLedger, status: "dict[str, Any]", session_usd: float | None, now: float
) -> list[str]:
    """The cost of today, and the budget of which the largest part is spent."""
    session = _value(status, "session_id")
    own = session if isinstance(session, str) else ""
    session_nano = None if session_usd is None else round(session_usd * 1e9)
    folder = _value(status, "workspace", "project_dir")
    spent = ledger.spent_nano(_period_start("day", now), own, session_nano, "")
    parts = [] if spent is None else [f"{_money(spent / 1e9)} today"]
    fractions = []
    for period, project, limit in ledger.budgets(folder if isinstance(folder, str) else ""):
        spent = ledger.spent_nano(_period_start(period, now), own, session_nano, project)
        if spent is not None and limit > 0:
            fractions.append((spent / limit, period, limit))
    for fraction, period, limit in sorted(fractions, reverse=True)[:1]:
        text = _paint(f"{fraction:.0%}", _level_colour(fraction, LIMIT_LEVELS))
        parts.append(f"{text} {_dim(f'of {_money(limit / 1e9)} per {period}')}")
    return parts


def _period_start(period: str, now: float) -> float:
    """The start of the current day, week (from Monday) or month in local time."""
    local = time.localtime(now)
    day = {"day": local.tm_mday, "week": local.tm_mday - local.tm_wday}.get(period, 1)
    return time.mktime((local.tm_year, local.tm_mon, day, 0, 0, 0, 0, 0, -1))
