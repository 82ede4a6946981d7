"""What every command that asks the ledger does: open it, take in what is new, read the filters, write the answer."""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..ledger.ask.spans import Span, span
from ..ledger.ask.where import Filters, filtered
from ..ledger.ask.zones import Zone
from ..ledger.store import Store, open_ledger
from ..report import LedgerError, StenoError
from ..screen.clean import wrap
from ..screen.forms import as_csv, as_json
from .terminal import complain, look, put, put_bytes, put_json


def now() -> int:
    """The present time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def opened(options: argparse.Namespace, sums: bool = False) -> Store:
    """The ledger that the options name, with what is new in it; `sums`: only what was spent is asked for."""
    store = open_ledger(options.ledger)
    if not getattr(options, "no_import", True):
        try:
            freshen(store, sums)
        except LedgerError as problem:  # what is there can still be asked
            complain(f"nothing new was taken in: {problem}")
    return store


def freshen(store: Store, sums: bool = False) -> None:
    """Take in what the agents wrote since the last time."""
    from ..ledger import pull  # it loads every reader
    from .progress import Progress

    progress = Progress(0)
    try:
        pull.freshen(store, complain, progress.bytes, sums)
    finally:
        progress.clear()


def unkept(paths: Sequence[str], tools: bool) -> Store:
    """A ledger in memory of what lies below these paths."""
    from ..ledger import pull

    return pull.unkept(paths, complain, tools)


def asked_span(options: argparse.Namespace) -> tuple[Zone, Span]:
    """The zone and the time that the options mean."""
    zone = Zone(options.timezone)
    return zone, span(zone, now(), options.since, options.until, options.last)


def asked_filters(store: Store, options: argparse.Namespace, time_span: Span) -> Filters:
    """The filters, with names as the ledger has them; one that fits nothing is told on stderr."""
    given = {name: getattr(options, name, None) for name in ("project", "model", "agent")}
    found = filtered(store, time_span, **given)
    for name, meant in zip(given, (found.projects, found.models, found.agents), strict=True):
        if meant == ():
            complain(f"nothing in the ledger has the {name} {given[name]!r}")
    return found


def write(
    form: str | None,
    lines: Callable[[], Sequence[str]],
    rows: Callable[[], Sequence[Any]],
    total: Any = None,
    more: dict[str, Any] | None = None,
    names: Sequence[str] = (),
) -> None:
    """The answer in the form that was asked for: lines for people, JSON or CSV. `total` is the number of rows if not given."""
    if form is None:
        put(lines())
        return
    found = rows()
    if form == "csv":
        put_bytes(as_csv(found, names))
    else:
        put_json(as_json(found, len(found) if total is None else total, more))


EMPTY = (
    "The ledger is empty. `steno import` takes in what the agents on this machine kept; `steno import PATH...` takes in "
    "recordings, tapes and transcripts from elsewhere."
)
PRUNED = "The details in this ledger were pruned."
SHOWN = 30  # lines of a list for people, unless they ask for more
MOST = 10**9  # lines that can be asked for


def take_number(options: argparse.Namespace) -> int | None:
    """How many lines are wanted: `--last 50`; the option is then not a span any more. Programs get all of them."""
    if options.last is not None and options.last.isdecimal():
        if len(options.last) > len(str(MOST)) or int(options.last) > MOST:
            raise StenoError(f"--last {options.last}: expected a number up to {MOST:,}, or a span such as 7d")
        many, options.last = int(options.last), None
        return many
    return None if options.form is not None or options.last is not None else SHOWN


def empty(store: Store, table: str) -> list[str]:
    """What to say where there is nothing to show."""
    if store.rows(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608  # a name of our own
        return ["Nothing fits: another time or another filter may find more."]
    if table == "runs" and store.rows("SELECT 1 FROM sessions LIMIT 1"):
        return ["No runs are in the ledger yet, only the agents' own sessions: `steno sessions` lists them."]
    if store.rows("SELECT 1 FROM pruned LIMIT 1"):
        kept = " The sums stay: `steno report`." if store.rows("SELECT 1 FROM spend LIMIT 1") else ""
        return list(wrap(PRUNED + kept, look().columns))
    return list(wrap(EMPTY, look().columns))


def when(zone: Zone) -> Callable[[int | None], str]:
    """How instants are shown to people."""
    return lambda at: "" if at is None else f"{zone.local(at):%Y-%m-%d %H:%M}"


def iso(at: int | None, zone: Zone) -> str | None:
    """An instant as ISO 8601 in a zone."""
    if at is None:
        return None
    offset = zone.offset(at)
    sign, ahead = ("-", -offset) if offset < 0 else ("+", offset)
    written = zone.local(at).isoformat(timespec="milliseconds" if at % 1000 else "seconds")
    return f"{written}{sign}{ahead // 60:02}:{ahead % 60:02}"
