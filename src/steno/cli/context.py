"""`steno context`: plots the context usage of a session, request by request."""

from functools import partial

from ..analysis.context import CONTEXT_LEVELS
from ..errors import StenoError
from ..ledger.queries import runs, sessions
from ..ledger.queries.context import context_history, initial_overhead
from ..ledger.queries.filters import TimeZone
from ..ledger.store import Store
from ..views.context import context_page
from .options import CommandParser
from .query_options import (
    format_iso,
    no_rows_message,
    open_updated_ledger,
    time_formatter,
    write_result,
)
from .terminal import detect_style, print_json, print_lines

EXAMPLES = """examples:
  steno context               the latest session
  steno context 3f9a21c0      a session, or the session of a run
  steno context --json | jq '[.rows[].fraction] | max'

Each column is a request of the main thread: input, cache writes and cache reads relative to the
model's context window. Dotted lines mark the thresholds: warn at 70 %, refresh (time for a new
session) at 80 %, critical at 95 %. The overhead is the size of the first request without the prompt
(about 4 characters per token): system prompt, tools and project instructions. Its parts
are listed if /context was used in the session (Claude Code).
"""


def run(args: list[str]) -> int:
    """Run `steno context` and return its exit code."""
    parser = CommandParser(
        "context", "Plot the context usage of a session, request by request.", EXAMPLES
    )
    parser.add_argument(
        "session",
        nargs="?",
        metavar="SESSION",
        help="session or run (default: the latest session)",
    )
    parser.add_timezone()
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_utf8_args(args)
    store = open_updated_ledger(options)
    zone = TimeZone(options.timezone)
    id_ = _resolve_session(store, options.session)
    if id_ is None:
        return _write_empty(store, options.form)
    session = sessions.get_session(store, id_)
    points = context_history(store, session)
    if not points and options.form is None:
        raise StenoError(f"{session.short_id}: no requests of this session in the ledger")
    is_measured = session.context_source is None
    overhead = initial_overhead(store, id_, points) if is_measured else None
    extra = {
        "session_id": id_,
        "context": session.context,
        "overhead": overhead,
        "thresholds": dict(CONTEXT_LEVELS),
        "timezone": zone.name,
    }
    write_result(
        options.form,
        lambda: context_page(session, points, overhead, detect_style(), time_formatter(zone)),
        lambda: [point.as_json(partial(format_iso, zone=zone)) for point in points],
        extra=extra,
        leading_columns=("at",),
    )
    return 0


def _resolve_session(store: Store, prefix: str | None) -> str | None:
    if prefix is None:
        return sessions.newest_session(store)
    table, id_ = runs.get_by_prefix(store, prefix)
    if table == "sessions":
        return id_
    session = runs.get_run(store, id_).session
    if session is None or not sessions.session_exists(store, session):
        raise StenoError(f"{prefix}: the session of this run is unknown")
    return session


def _write_empty(store: Store, form: str | None) -> int:
    if form == "json":
        print_json(b'{"rows":[],"total":0}')
    elif form is None:
        print_lines(no_rows_message(store, "sessions"))
    return 0
