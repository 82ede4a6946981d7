"""`steno show ID`: a run or session of the ledger, as something that the views of `show` can print. It never prints."""

import argparse
from functools import partial
from pathlib import Path

import msgspec

from ..errors import StenoError
from ..ledger.queries import runs, sessions
from ..ledger.queries.filters import WhereClause
from ..ledger.queries.time_range import TimeZone
from ..ledger.store import Store, ledger_exists, open_ledger
from ..recording.open import open_recording
from ..views import runs as listing
from .query_options import format_iso, open_updated_ledger, time_formatter
from .show_views import STREAMING_VIEWS, StoredInput


def find_in_ledger(name: str, options: argparse.Namespace) -> StoredInput | None:
    """What the ledger knows under this id, or the beginning of it; None if it knows nothing."""
    if not ledger_exists(options.ledger):
        return None
    store = open_ledger(options.ledger)
    found = runs.find_by_prefix(store, name)
    if found is None and not options.no_import:
        store.close()
        store = open_updated_ledger(options)  # with what is new
        found = runs.find_by_prefix(store, name)
    if found is None:
        raise StenoError(
            f"{name}: neither a file nor the beginning of a run's or a session's id in the ledger"
        )
    bare = (
        options.prices or options.view in STREAMING_VIEWS
    )  # what is shown needs the recording itself
    kept = (
        _stored_run(store, found[1], bare)
        if found[0] == "runs"
        else _stored_session(store, found[1], options.view)
    )
    notes = runs.list_notes(store, *found)
    kept.render_notes = lambda look: (
        ["", *listing.notes_section(notes, look, time_formatter(TimeZone()))] if notes else []
    )
    store.close()
    return kept


def _stored_run(store: Store, id_: str, bare: bool) -> StoredInput:
    run, report = runs.get_run(store, id_), runs.load_report(store, id_)
    if report is not None and not bare:
        kept = StoredInput(id_, ())
        kept.report = report
        return kept
    if run.source is None or not Path(run.source).exists():
        what = "it has no report" if report is None else "this view needs its recording"
        raise StenoError(
            f"{id_}: {what}, and the recording is not there: {run.source or 'its place is not known'}"
        )
    return _open_recording(run.source)


def _stored_session(store: Store, id_: str, view: str | None) -> StoredInput:
    path = next(
        (path for path in sessions.transcript_paths(store, id_) if Path(path).exists()), None
    )
    if path is not None:
        return _open_recording(path)
    if view not in (None, "card", "json"):
        raise StenoError(
            f"{id_}: its transcript is not there any more; the ledger has only its figures (--card, --json)"
        )
    session = sessions.get_session(store, id_)
    kept = StoredInput(id_, ())
    kept.json = msgspec.json.encode(session.as_json(partial(format_iso, zone=TimeZone())))
    own = runs.list_runs(store, WhereClause().add("session = ?", id_))
    kept.render_page = lambda look: listing.session_card(
        session, own, look, time_formatter(TimeZone())
    )
    return kept


def _open_recording(path: str) -> StoredInput:
    given = open_recording(path)
    kept = StoredInput(given.name, given.lines, given.extra_events)
    kept.problems = given.problems
    return kept
