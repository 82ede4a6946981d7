"""`steno report`: what was spent, by day, project, model and so on. It parses and prints; the ledger adds up."""

import argparse
import time
from collections.abc import Callable
from typing import Any

from ..answer.sums import KEYS, TIMES, Line, Sums, Usage
from ..ledger.ask import sums
from ..ledger.ask.tools import tool_sums
from ..ledger.ask.where import Filters
from ..ledger.ask.zones import Zone
from ..ledger.store import Store
from ..screen import usage as page
from .asked import asked_filters, asked_span, empty, iso, opened, unkept, write
from .options import Parser
from .terminal import look

EXAMPLES = """examples:
  steno report                              what each day cost
  steno report month --timezone Asia/Tokyo  months as they begin and end in Tokyo
  steno report model --last 7d              by model, over the last seven days
  steno report project --since 2026-11-01 --top 5
  steno report tool --json | jq '.rows[] | select(.error_rate > 0.1)'
  steno report --no-ledger ~/.claude/projects   read these, and keep nothing

Days, weeks (ISO 8601) and months are those of the time zone. Requests whose model has no known price are counted
as unpriced, never as free. Wasted is what runs cost that did not end in success.
"""
COURSES = ("project", "model", "agent")  # what has its cost over the time beside it
SORTS: dict[str, Callable[[Sums], Any]] = {
    "cost": lambda sums: -(sums.nano or 0),
    "tokens": lambda sums: -(sums.tokens.total or 0),
    "requests": lambda sums: -sums.requests,
    "saved": lambda sums: -sums.saved_nano,
}


def run(words: list[str]) -> int:
    """Carry out `steno report` and return its exit code."""
    options = _options(words)
    tools = options.by == "tool"
    store = unkept(options.no_ledger, tools) if options.no_ledger else opened(options, sums=not tools)
    zone, span = asked_span(options)
    start = time.perf_counter()
    filters = asked_filters(store, options, span)
    answer = _tools if options.by == "tool" else _usage
    answer(store, options, zone, filters, start)
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("report", "Say what was spent: requests, tokens, cost and where it comes from, cache, waste.", EXAMPLES)
    what = f"one line for each {', '.join(KEYS)} or tool (default: day)"
    parser.add_argument("by", nargs="?", default="day", choices=(*KEYS, "tool"), metavar="BY", help=what)
    parser.add_argument("--top", type=int, metavar="N", help="only the first N lines; of days, weeks and months the last N")
    parser.add_argument("--sort", choices=(*SORTS, "name"), help="the order of the lines (default: time, else cost)")
    parser.add_argument(
        "--no-ledger", nargs="+", metavar="PATH", help="read these transcripts or folders instead, and keep nothing"
    )
    parser.add_span()
    parser.add_filters("project", "model", "agent")
    parser.add_forms()
    parser.add_ledger()
    options = parser.parse_intermixed_args(words)
    if options.top is not None and options.top < 1:
        parser.error("--top wants a number above 0")
    if options.by == "tool" and options.model:
        parser.error("--model: calls are not counted by model; take it away, or ask for another report")
    return options


def _usage(store: Store, options: argparse.Namespace, zone: Zone, filters: Filters, start: float) -> None:
    answer = sums.usage(store, options.by, zone, filters)
    shown = _shown(answer.lines, options)
    if options.by == "session":
        sums.named(store, shown)
    left_off, answer.lines = len(answer.lines) - len(shown), shown
    courses = sums.courses(store, options.by, filters, page.STEPS) if options.form is None and options.by in COURSES else None
    more = {"by": options.by, **_about(options, zone, filters, start), **_beside(answer), "left_off": left_off}
    write(
        options.form,
        lambda: page.usage(answer, look(), left_off, courses) if shown else empty(store, "spend"),
        lambda: [line.as_json(options.by) for line in shown],
        answer.total.as_json(),
        more,
        (options.by,),
    )


def _shown(lines: list[Line], options: argparse.Namespace) -> list[Line]:
    """The lines in the order that was asked for, and no more than were asked for."""
    if options.sort == "name":
        lines = sorted(lines, key=lambda line: line.key or "")
    elif options.sort is not None:
        lines = sorted(lines, key=lambda line: SORTS[options.sort](line.sums))
    if options.top is None:
        return lines
    return lines[-options.top :] if options.by in TIMES and options.sort is None else lines[: options.top]


def _about(options: argparse.Namespace, zone: Zone, filters: Filters, start: float) -> dict[str, Any]:
    """What was asked, and how long the ledger took to answer."""
    span = filters.span
    took = round((time.perf_counter() - start) * 1000, 3)
    return {"timezone": zone.name, "since": iso(span.since, zone), "until": iso(span.until, zone), "query_ms": took}


def _beside(answer: Usage) -> dict[str, Any]:
    costs = [(line.key, line.sums.as_json()["cost"]) for line in answer.unpriced]
    unpriced = [{"model": key, "requests": cost["unpriced_requests"], "tokens": cost["unpriced_tokens"]} for key, cost in costs]
    beside = {"wasted": answer.waste.as_json(), "peak_context": answer.peak, "unpriced": unpriced}
    return {**beside, "untold_runs": answer.untold}


def _tools(store: Store, options: argparse.Namespace, zone: Zone, filters: Filters, start: float) -> None:
    lines, total = tool_sums(store, filters)
    if options.sort == "name":
        lines = sorted(lines, key=lambda line: line.name or "")
    shown = lines[: options.top]
    left_off = len(lines) - len(shown)
    more = {"by": "tool", **_about(options, zone, filters, start), "left_off": left_off}
    write(
        options.form,
        lambda: page.tools(shown, total, look(), left_off) if shown else ["No tool was called there."],
        lambda: [{"tool": line.name, **line.as_json()} for line in shown],
        total.as_json(),
        more,
        ("tool",),
    )
