"""`steno show ID`: a run or session of the ledger, as something that the views of `show` can print. It never prints."""

import argparse
import os
from functools import partial
from pathlib import Path

import msgspec

from ..ledger.ask import runs, sessions
from ..ledger.ask.where import Where
from ..ledger.ask.zones import Zone
from ..ledger.settle import stored
from ..ledger.store import Store, default_path, open_ledger
from ..report import StenoError
from ..screen import listing
from ..source import open_input
from .asked import iso, opened, when
from .views import STREAMS, Kept


def known(name: str, options: argparse.Namespace) -> Kept | None:
    """What the ledger knows under this id, or the beginning of it; None if it knows nothing."""
    if not _exists(options.ledger):
        return None
    store = open_ledger(options.ledger)
    found = runs.find(store, name)
    if found is None and not options.no_import:
        store.close()
        store = opened(options)  # with what is new
        found = runs.find(store, name)
    if found is None:
        raise StenoError(f"{name}: neither a file nor the beginning of a run's or a session's id in the ledger")
    bare = options.prices or options.view in STREAMS  # what is shown needs the recording itself
    kept = _run(store, found[1], bare) if found[0] == "runs" else _session(store, found[1], options.view)
    notes = runs.notes(store, *found)
    kept.notes = lambda look: ["", *listing.notes(notes, look, when(Zone()))] if notes else []
    store.close()
    return kept


def _exists(given: str | None) -> bool:
    """Whether there is a ledger: looking for an id makes none."""
    where = given or os.environ.get("STENO_LEDGER") or str(default_path())
    return "://" in where or Path(where).exists()


def _run(store: Store, id_: str, bare: bool) -> Kept:
    run, report = runs.one(store, id_), stored(store, id_)
    if report is not None and not bare:
        kept = Kept(id_, ())
        kept.report = report
        return kept
    if run.source is None or not Path(run.source).exists():
        what = "it has no report" if report is None else "this view needs its recording"
        raise StenoError(f"{id_}: {what}, and the recording is not there: {run.source or 'its place is not known'}")
    return _read(run.source)


def _session(store: Store, id_: str, view: str | None) -> Kept:
    path = next((path for path in sessions.transcripts(store, id_) if Path(path).exists()), None)
    if path is not None:
        return _read(path)
    if view not in (None, "card", "json"):
        raise StenoError(f"{id_}: its transcript is not there any more; the ledger has only its figures (--card, --json)")
    session = sessions.one(store, id_)
    kept = Kept(id_, ())
    kept.json = msgspec.json.encode(session.as_json(partial(iso, zone=Zone())))
    own = runs.runs(store, Where().add("session = ?", id_))
    kept.page = lambda look: listing.session_card(session, own, look, when(Zone()))
    return kept


def _read(path: str) -> Kept:
    given = open_input(path)
    kept = Kept(given.name, given.data, given.after)
    kept.cut = given.cut
    return kept
