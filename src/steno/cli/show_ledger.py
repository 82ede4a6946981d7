"""`steno show ID`: loads a run or session from the ledger for the views of `show`."""

import argparse
from functools import partial
from pathlib import Path

import msgspec

from ..errors import StenoError
from ..ledger.queries import runs, sessions
from ..ledger.queries.filters import TimeZone, WhereClause
from ..ledger.store import Store, check_named_ledger, ledger_exists
from ..recording.open import open_recording
from ..views import runs as view_runs
from ..views.table import PageStyle
from .query_options import format_iso, open_updated_ledger, open_waiting_ledger, time_formatter
from .show_views import RECORDING_VIEWS, StoredInput


def find_in_ledger(name: str, options: argparse.Namespace) -> StoredInput:
    """The run or session with this ID prefix."""
    check_named_ledger(options.ledger)
    if not ledger_exists(options.ledger):
        raise StenoError(f"{name}: no such file, and there is no ledger yet")
    store = open_waiting_ledger(options.ledger)
    match = runs.find_by_prefix(store, name)
    if not options.no_import and _may_find_more(store, match):
        store.close()
        store = open_updated_ledger(options)
        match = runs.find_by_prefix(store, name)
    if match is None:
        raise StenoError(
            f"{name}: no such file, and no such run or session in the ledger; see: steno runs"
        )
    table, id_ = match
    if table == "runs":
        needs_recording = options.prices or options.view in RECORDING_VIEWS
        source = runs.get_run(store, id_).source
        if getattr(options, "otel", None) is not None and source is not None:
            needs_recording |= Path(source).exists()  # else there are no spans of requests
        stored = _stored_run(store, id_, needs_recording)
    else:
        stored = _stored_session(store, id_, options.view)
    notes = runs.list_notes(store, table, id_)

    def render_notes(style: PageStyle) -> list[str]:
        if not notes:
            return []
        return ["", *view_runs.notes_section(notes, style, time_formatter(TimeZone()))]

    stored.render_notes = render_notes
    store.close()
    if stored.render_page is not None and options.needs_report:
        raise StenoError(f"{name}: --exit-from and outputs need a verdict; the ledger has none")
    return stored


def _may_find_more(store: Store, match: runs.LedgerId | None) -> bool:
    """Whether an import may find the session, or its transcript."""
    if match is None:
        return True
    return match.table == "sessions" and _find_transcript(store, match.id) is None


def _find_transcript(store: Store, session: str) -> str | None:
    paths = sessions.transcript_paths(store, session)
    return next((path for path in paths if Path(path).exists()), None)


def _stored_run(store: Store, id_: str, needs_recording: bool) -> StoredInput:
    run = runs.get_run(store, id_)
    report = runs.load_report(store, id_)
    if report is not None and not needs_recording:
        stored = StoredInput(id_, ())
        stored.report = report
        return stored
    if run.source is None or not Path(run.source).exists():
        reason = "it has no report" if report is None else "this view needs its recording"
        raise StenoError(f"{id_}: {reason}; recording not found: {run.source or 'path unknown'}")
    return _open_recording(run.source)


def _stored_session(store: Store, id_: str, view: str | None) -> StoredInput:
    path = _find_transcript(store, id_)
    session = sessions.get_session(store, id_)
    if path is not None:
        stored = _open_recording(path)
        stored.complete = partial(sessions.complete_report, session=session)
        stored.facts = view_runs.prompt_facts(session)
        return stored
    session_runs = runs.list_runs(store, WhereClause().add("session = ?", id_))
    if view not in (None, "summary", "json"):
        if len(session_runs) != 1:
            raise StenoError(
                f"{id_}: transcript not found; only --summary and --json are available"
            )
        return _stored_run(store, session_runs[0].id, view in RECORDING_VIEWS)
    stored = StoredInput(id_, ())
    stored.json = msgspec.json.encode(session.as_json(partial(format_iso, zone=TimeZone())))
    stored.render_page = lambda style: view_runs.session_card(
        session, session_runs, style, time_formatter(TimeZone())
    )
    return stored


def _open_recording(path: str) -> StoredInput:
    recording = open_recording(path)
    stored = StoredInput(
        recording.name,
        recording.lines,
        recording.extra_events,
        recording.folder,
        recording.use_local_transcripts,
    )
    stored.problems = recording.problems
    return stored
