"""What the ledger knows that a run must know before it starts: the session that is meant, and what may still be spent.

A ledger that is not there yet is not made: before a run is started nothing is written.
"""

import os
from collections.abc import Callable

from msgspec import Struct

from ..agents import Agent
from ..errors import LedgerError, StenoError
from ..ledger.queries import budget as budgets
from ..ledger.queries import runs, sessions
from ..ledger.queries.time_range import TimeZone
from ..ledger.results import BudgetStatus
from ..ledger.store import Store, open_existing_ledger
from ..ledger.timestamps import now_ms

# -- sessions ------------------------------------------------------------------------------------------------------


class ResumableSession(Struct, frozen=True):
    """A session to go on with, and the folder that it belongs to, where that is known."""

    id: str
    folder: str | None = None


def resolve_session(agent: Agent, given: str, where: str | None, name: str) -> ResumableSession:
    """The session that is meant by its id, or by the beginning of the id of a run or a session in the ledger."""
    if agent.is_session_id(given):
        return ResumableSession(given)
    store = open_existing_ledger(where)
    if store is None:
        raise StenoError(
            f"{name} {given}: expected the id of a session (a UUID); there is no ledger yet to look for a run in"
        )
    try:
        found = _find_session(store, given, name)
    finally:
        store.close()
    if not agent.is_session_id(found.id):
        raise StenoError(f"{name} {given}: that run has no session of {agent.name} to go on with")
    return found


def _find_session(store: Store, given: str, name: str) -> ResumableSession:
    found = runs.find_by_prefix(store, given)
    if found is None:
        raise StenoError(
            f"{name} {given}: expected the id of a session (a UUID), or the beginning of a run's id in the ledger"
        )
    if found[0] == "runs":
        run = runs.get_run(store, found[1])
        return ResumableSession(run.session or "", run.project)
    return ResumableSession(found[1], sessions.get_session(store, found[1]).project)


# -- budgets -------------------------------------------------------------------------------------------------------


def tightest_budget(
    where: str | None, project: str, say: Callable[[str], None]
) -> BudgetStatus | None:
    """The budget with the least left of those that hold for a project; None: none is set."""
    store = open_existing_ledger(where)
    if store is None:
        return None
    try:
        if not budgets.has_budgets(store):
            return None
        _import_new_runs(store, say)
        found = budgets.list_budgets(store, TimeZone(), now_ms())
    finally:
        store.close()
    ours = [one for one in found if one.project in (None, project, os.path.realpath(project))]
    return min(ours, key=lambda one: one.limit_nano - one.spent_nano, default=None)


def _import_new_runs(store: Store, say: Callable[[str], None]) -> None:
    """What was spent elsewhere counts too."""
    from ..ledger import importer as pull  # it loads every reader

    try:
        pull.import_new(store, say, requests_only=True)
    except LedgerError as problem:
        say(f"budgets are checked without what is new: {problem}")
