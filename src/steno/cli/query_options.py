"""Shared steps of commands that query the ledger: open, import, filter, print."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import LedgerError, StenoError
from ..export.tables import csv_parts, json_parts
from ..ledger.protocol import LOCK_TIMEOUT_SECONDS, LockPolicy, now_ms
from ..ledger.queries.filters import (
    Filters,
    TimeRange,
    TimeZone,
    WhereClause,
    empty_reason,
    is_time_span,
    parse_time_range,
    resolve_filters,
)
from ..ledger.sqlite import IN_MEMORY
from ..ledger.store import Store, check_named_ledger, ledger_exists, open_ledger
from ..views.formatting import escape_json
from ..workspace.repository import worktrees_of
from .terminal import detect_style, print_error, print_lines, write_bytes

# Options, and the fields of Filters that they set.
NAME_FILTERS = {
    "project": "projects",
    "model": "models",
    "agent": "agents",
    "host": "hosts",
    "user": "users",
    "repository": "repositories",
    "branch": "branches",
}


def open_waiting_ledger(
    location: str | None, *, read_only: bool = False, lock_timeout: float = LOCK_TIMEOUT_SECONDS
) -> Store:
    """The ledger; a long wait for its lock is reported."""
    return open_ledger(
        location, read_only=read_only, locks=LockPolicy(lock_timeout, on_wait=print_error)
    )


def open_ledger_if_any(location: str | None) -> Store:
    """The ledger, else an empty one: for what the ledger only adds to."""
    return open_waiting_ledger(location) if ledger_exists(location) else open_ledger(IN_MEMORY)


def open_ledger_for_reading(location: str | None, can_import: bool = False) -> Store:
    """The ledger; never created at a path that was given, nor without anything to import."""
    check_named_ledger(location)
    if can_import and _has_transcripts():
        return open_waiting_ledger(location)
    return open_ledger_if_any(location)


def _has_transcripts() -> bool:
    from ..ledger.discovery import find_transcripts, transcript_folders

    folders = transcript_folders(os.environ)
    return any(any(find_transcripts(agent, folder)) for agent, folder in folders)


def open_updated_ledger(options: argparse.Namespace, only_sums: bool = False) -> Store:
    """The ledger after importing new transcripts; `only_sums` imports usage totals alone."""
    can_import = not getattr(options, "no_import", True)
    store = open_ledger_for_reading(options.ledger, can_import)
    if can_import:
        try:
            import_new(store, only_sums)
        except LedgerError as error:  # the existing rows can still be queried
            print_error(f"new transcripts were not imported: {error}")
    return store


def import_new(store: Store, only_sums: bool = False) -> None:
    """Import what the agents wrote since the last import."""
    from ..ledger import importer  # loads the readers of all agents
    from .terminal import Progress

    progress = Progress(0)
    try:
        importer.import_new(store, print_error, progress.update, only_sums)
    finally:
        progress.clear()


def this_folder() -> WhereClause:
    """The runs of the current folder, those below it, and those in worktrees of its repository."""
    folders = dict.fromkeys((os.getcwd(), os.path.realpath(".")))  # noqa: PTH109  # as runs have it
    return WhereClause().add_folders([*folders, *worktrees_of(".")])


def open_memory_ledger(paths: Sequence[str], tools: bool) -> Store:
    """A temporary ledger of the files below these paths."""
    from ..ledger import importer

    return importer.build_memory_ledger(paths, print_error, tools)


def time_range_from_options(options: argparse.Namespace) -> tuple[TimeZone, TimeRange]:
    zone = TimeZone(options.timezone)
    return zone, parse_time_range(zone, now_ms(), options.since, options.until, options.last)


def parse_filters(store: Store, options: argparse.Namespace, time_range: TimeRange) -> Filters:
    """The filters, with full names as in the ledger; one without a match is reported."""
    values = {name: getattr(options, name, None) for name in NAME_FILTERS}
    tags = getattr(options, "tag", None)
    filters = resolve_filters(store, time_range, **values, tag=tags)
    for name, field in NAME_FILTERS.items():
        if getattr(filters, field) == ():
            print_error(f"no {name} {values[name]!r} in the ledger")
    return filters


def write_result(
    form: str | None,
    lines: Callable[[], Sequence[str]],
    rows: Callable[[], Iterable[Any]],
    total: Any = None,
    extra: dict[str, Any] | None = None,
    leading_columns: Sequence[str] = (),
) -> None:
    """Print lines for people, JSON or CSV. `total` defaults to the number of rows."""
    if form is None:
        print_lines(lines())
        return
    if form == "csv":
        for line in csv_parts(rows, leading_columns):
            write_bytes(line)
        return
    for part in json_parts(rows(), total, extra):
        write_bytes(escape_json(part))
    write_bytes(b"\n")


EMPTY_LEDGER_MESSAGE = (
    "The ledger is empty. Run `steno ledger import` to import the transcripts of the agents on "
    "this machine, or `steno ledger import PATH...` for other recordings and transcripts."
)
PRUNED_MESSAGE = "The details in this ledger were pruned."
DEFAULT_ROWS = 30
MAX_ROWS = 10**9


def pop_row_limit(options: argparse.Namespace) -> int | None:
    """The number of rows of `--last 50`, which is then no time span; None for all rows."""
    if options.last is not None and options.last.isdecimal():
        if len(options.last) > len(str(MAX_ROWS)) or int(options.last) > MAX_ROWS:
            raise StenoError(
                f"--last {options.last}: expected a number up to {MAX_ROWS:,}, or a span such as 7d"
            )
        limit = int(options.last)
        if not limit:
            raise StenoError(f"--last {options.last}: expected a count above 0 or a time span (7d)")
        options.last = None
        return limit
    if options.last is not None and not is_time_span(options.last):
        raise StenoError(f"--last {options.last}: expected a count (100) or a time span (7d)")
    return None if options.form is not None or options.last is not None else DEFAULT_ROWS


def no_rows_message(store: Store, table: str) -> list[str]:
    """The message for an empty result."""
    reason = empty_reason(store, table)
    if reason == "no_match":
        return ["No matches. Try a wider time range or fewer filters."]
    if reason == "sessions_only":
        return ["No runs in the ledger, only sessions (see: steno sessions)."]
    if reason in ("pruned", "pruned_totals_kept"):
        has_totals = reason == "pruned_totals_kept"
        hint = " Totals are still available: `steno usage`." if has_totals else ""
        return detect_style().wrap(PRUNED_MESSAGE + hint)
    return detect_style().wrap(EMPTY_LEDGER_MESSAGE)


def time_formatter(zone: TimeZone) -> Callable[[int | None], str]:
    """Formats milliseconds since 1970 for people."""
    return lambda at: "" if at is None else f"{zone.to_local(at):%Y-%m-%d %H:%M}"


def format_iso(at: int | None, zone: TimeZone) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in a time zone."""
    if at is None:
        return None
    offset = zone.offset_minutes(at)
    sign = "-" if offset < 0 else "+"
    hours, minutes = divmod(abs(offset), 60)
    local = zone.to_local(at).isoformat(timespec="milliseconds" if at % 1000 else "seconds")
    return f"{local}{sign}{hours:02}:{minutes:02}"
