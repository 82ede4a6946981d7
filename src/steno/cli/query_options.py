"""What every command that asks the ledger does: open it, take in what is new, read the filters, write the answer."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LedgerError, StenoError
from ..ledger.queries.filters import Filters, empty_reason, resolve_filters
from ..ledger.queries.time_range import TimeRange, TimeZone, parse_time_range
from ..ledger.store import Store, open_ledger
from ..ledger.timestamps import now_ms
from ..views.export import as_csv, as_json
from ..views.sanitize import wrap
from .terminal import detect_style, print_error, print_json, print_lines, write_bytes


def open_updated_ledger(options: argparse.Namespace, only_sums: bool = False) -> Store:
    """The ledger that the options name, with what is new in it; `sums`: only what was spent is asked for."""
    store = open_ledger(options.ledger)
    if not getattr(options, "no_import", True):
        try:
            import_new(store, only_sums)
        except LedgerError as problem:  # what is there can still be asked
            print_error(f"nothing new was taken in: {problem}")
    return store


def import_new(store: Store, sums: bool = False) -> None:
    """Take in what the agents wrote since the last time."""
    from ..ledger import importer as pull  # it loads every reader
    from .terminal import Progress

    progress = Progress(0)
    try:
        pull.import_new(store, print_error, progress.update, sums)
    finally:
        progress.clear()


def open_memory_ledger(paths: Sequence[str], tools: bool) -> Store:
    """A ledger in memory of what lies below these paths."""
    from ..ledger import importer as pull

    return pull.build_memory_ledger(paths, print_error, tools)


def time_range_from_options(options: argparse.Namespace) -> tuple[TimeZone, TimeRange]:
    """The zone and the time that the options mean."""
    zone = TimeZone(options.timezone)
    return zone, parse_time_range(zone, now_ms(), options.since, options.until, options.last)


def parse_filters(store: Store, options: argparse.Namespace, time_span: TimeRange) -> Filters:
    """The filters, with names as the ledger has them; one that fits nothing is told on stderr."""
    given = {name: getattr(options, name, None) for name in ("project", "model", "agent")}
    found = resolve_filters(store, time_span, **given)
    for name, meant in zip(given, (found.projects, found.models, found.agents), strict=True):
        if meant == ():
            print_error(f"nothing in the ledger has the {name} {given[name]!r}")
    return found


def write_result(
    form: str | None,
    lines: Callable[[], Sequence[str]],
    rows: Callable[[], Sequence[Any]],
    total: Any = None,
    extra: dict[str, Any] | None = None,
    leading_columns: Sequence[str] = (),
) -> None:
    """The answer in the form that was asked for: lines for people, JSON or CSV. `total` is the number of rows if not given."""
    if form is None:
        print_lines(lines())
        return
    found = rows()
    if form == "csv":
        write_bytes(as_csv(found, leading_columns))
    else:
        print_json(as_json(found, len(found) if total is None else total, extra))


EMPTY_LEDGER_MESSAGE = (
    "The ledger is empty. `steno import` takes in what the agents on this machine kept; `steno import PATH...` takes in "
    "recordings, tapes and transcripts from elsewhere."
)
PRUNED_MESSAGE = "The details in this ledger were pruned."
DEFAULT_ROWS = 30  # lines of a list for people, unless they ask for more
MAX_ROWS = 10**9  # lines that can be asked for


def pop_row_limit(options: argparse.Namespace) -> int | None:
    """How many lines are wanted: `--last 50`; the option is then not a span any more. Programs get all of them."""
    if options.last is not None and options.last.isdecimal():
        if len(options.last) > len(str(MAX_ROWS)) or int(options.last) > MAX_ROWS:
            raise StenoError(
                f"--last {options.last}: expected a number up to {MAX_ROWS:,}, or a span such as 7d"
            )
        many, options.last = int(options.last), None
        return many
    return None if options.form is not None or options.last is not None else DEFAULT_ROWS


def no_rows_message(store: Store, table: str) -> list[str]:
    """What to say where there is nothing to show."""
    reason = empty_reason(store, table)
    if reason == "no_match":
        return ["Nothing fits: another time or another filter may find more."]
    if reason == "sessions_only":
        return [
            "No runs are in the ledger yet, only the agents' own sessions: `steno sessions` lists them."
        ]
    if reason in ("pruned", "pruned_totals_kept"):
        kept = " The sums stay: `steno report`." if reason == "pruned_totals_kept" else ""
        return list(wrap(PRUNED_MESSAGE + kept, detect_style().columns))
    return list(wrap(EMPTY_LEDGER_MESSAGE, detect_style().columns))


def time_formatter(zone: TimeZone) -> Callable[[int | None], str]:
    """How instants are shown to people."""
    return lambda at: "" if at is None else f"{zone.to_local(at):%Y-%m-%d %H:%M}"


def format_iso(at: int | None, zone: TimeZone) -> str | None:
    """An instant as ISO 8601 in a zone."""
    if at is None:
        return None
    offset = zone.offset_minutes(at)
    sign, ahead = ("-", -offset) if offset < 0 else ("+", offset)
    written = zone.to_local(at).isoformat(timespec="milliseconds" if at % 1000 else "seconds")
    return f"{written}{sign}{ahead // 60:02}:{ahead % 60:02}"
