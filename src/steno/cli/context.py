"""`steno context`: how full a session's window was, request by request. It parses and prints; the ledger answers."""

from functools import partial

from ..ledger.ask import runs, sessions
from ..ledger.ask.context import before_any_work, course
from ..ledger.ask.zones import Zone
from ..ledger.store import Store
from ..meter import LEVELS
from ..report import StenoError
from ..screen.plot import context
from .asked import empty, iso, opened, when, write
from .options import Parser
from .terminal import look, put, put_json

EXAMPLES = """examples:
  steno context               of the session that was at work last
  steno context 3f9a21c0      of this one (or of a run's session)
  steno context --json | jq '[.rows[].fraction] | max'

Each column is a request of the main thread: input, cache writes and cache reads against the model's window. The dotted
lines are the thresholds: warn at 70 %, refresh at 80 %, critical at 95 %. The overhead is what the first request held
besides the prompt (at about 4 characters a token): the system prompt, the tools, the project's notes.
"""


def run(words: list[str]) -> int:
    """Carry out `steno context` and return its exit code."""
    parser = Parser("context", "Draw how full a session's context window was, request by request.", EXAMPLES)
    parser.add_argument("session", nargs="?", metavar="SESSION", help="the session or run (default: the one at work last)")
    parser.add_argument("--timezone", metavar="NAME", help="the zone of the times (default: the system's)")
    parser.add_forms()
    parser.add_ledger()
    options = parser.given(words)
    store, zone = opened(options), Zone(options.timezone)
    id_ = _session(store, options.session)
    if id_ is None:
        return _nothing(store, options.form)
    session = sessions.one(store, id_)
    points = course(store, id_, session.context_limit)
    if not points and options.form is None:
        raise StenoError(f"{session.short}: no requests of this session are in the ledger")
    overhead = before_any_work(store, id_, points)
    more = {
        "session_id": id_,
        "context": session.context,
        "overhead": overhead,
        "thresholds": dict(LEVELS),
        "timezone": zone.name,
    }
    write(
        options.form,
        lambda: context(session, points, overhead, look(), when(zone)),
        lambda: [point.as_json(partial(iso, zone=zone)) for point in points],
        more=more,
        names=("at",),
    )
    return 0


def _session(store: Store, given: str | None) -> str | None:
    if given is None:
        return sessions.newest(store)
    table, id_ = runs.found(store, given)
    if table == "sessions":
        return id_
    session = runs.one(store, id_).session
    if session is None or not store.rows("SELECT 1 FROM sessions WHERE id = ?", (session,)):
        raise StenoError(f"{given}: the session of this run is not known")
    return session


def _nothing(store: Store, form: str | None) -> int:
    if form == "json":
        put_json(b'{"rows":[],"total":0}')
    elif form is None:
        put(empty(store, "sessions"))
    return 0
