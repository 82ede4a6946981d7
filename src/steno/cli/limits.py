"""`steno limits`: shows how much of the usage limits is used, and when they reset."""

import argparse
from functools import partial

from ..ledger.protocol import now_ms
from ..ledger.queries.filters import TimeZone
from ..ledger.queries.limits import list_limits
from ..views.limits import limits_page
from .options import CommandParser
from .query_options import format_iso, open_updated_ledger, time_formatter, write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno limits
  steno limits --json | jq '.rows[] | select(.utilization > 0.8)'
  steno limits --json | jq -r '.rows[] | select(.window == "five_hour") | .resets_at'

Shows the last known state: from the status line of Claude Code (see: steno statusline), from the
output of an agent, or from the error of a run that a limit stopped. The pace is the mean over the
last fifth of the window (one hour of five); if the limit was seen only once, since its window
began.
"""
NO_LIMITS_MESSAGE = (
    "No usage limits observed in the last 8 days. Claude Code reports them to its status line for "
    "subscriptions: run `steno statusline --install` to store them."
)


def run(args: list[str]) -> int:
    """Run `steno limits` and return its exit code."""
    options = _parse_args(args)
    store = open_updated_ledger(options)
    zone = TimeZone(options.timezone)
    now = now_ms()
    limits = list_limits(store, now)
    style = detect_style()
    write_result(
        options.form,
        lambda: (
            limits_page(limits, now, style, time_formatter(zone))
            if limits
            else style.wrap(NO_LIMITS_MESSAGE)
        ),
        lambda: [limit.as_json(now, partial(format_iso, zone=zone)) for limit in limits],
        extra={"timezone": zone.name},
        leading_columns=("agent", "window"),
    )
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "limits", "Show how much of the usage limits is used, and when they reset.", EXAMPLES
    )
    parser.add_timezone()
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)
