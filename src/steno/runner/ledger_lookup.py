"""Ledger queries before a run starts: the session to resume, and the remaining budget.

A missing ledger is not created: nothing is written before a run starts.
"""

import os
from collections.abc import Callable

from msgspec import Struct

from ..agents import Agent
from ..errors import LedgerError, StenoError
from ..ledger.queries import budget, runs, sessions
from ..ledger.queries.time_range import TimeZone
from ..ledger.results import BudgetStatus
from ..ledger.store import Store, open_existing_ledger
from ..ledger.timestamps import now_ms

# -- sessions --------------------------------------------------------------------------------------


class ResumableSession(Struct, frozen=True):
    """A session to resume, and its folder if known."""

    id: str
    folder: str | None = None


def resolve_session(
    agent: Agent, given_id: str, ledger: str | None, option: str
) -> ResumableSession:
    """The session with this id, or the one of a run or session id prefix in the ledger."""
    if agent.is_session_id(given_id):
        return ResumableSession(given_id)
    store = open_existing_ledger(ledger)
    if store is None:
        raise StenoError(
            f"{option} {given_id}: expected a session id (a UUID); run ids need a ledger, "
            "and there is none yet"
        )
    try:
        session = _find_session(store, given_id, option)
    finally:
        store.close()
    if not agent.is_session_id(session.id):
        raise StenoError(f"{option} {given_id}: that run has no {agent.name} session to resume")
    return session


def _find_session(store: Store, prefix: str, option: str) -> ResumableSession:
    match = runs.find_by_prefix(store, prefix)
    if match is None:
        raise StenoError(
            f"{option} {prefix}: expected a session id (a UUID) or the start of a run id "
            "in the ledger"
        )
    table, row_id = match
    if table == "runs":
        run = runs.get_run(store, row_id)
        return ResumableSession(run.session or "", run.project)
    return ResumableSession(row_id, sessions.get_session(store, row_id).project)


# -- budgets ---------------------------------------------------------------------------------------


def tightest_budget(
    ledger: str | None, project: str, warn: Callable[[str], None]
) -> BudgetStatus | None:
    """The project's budget with the least left; None if none is set."""
    store = open_existing_ledger(ledger)
    if store is None:
        return None
    try:
        if not budget.has_budgets(store):
            return None
        _import_new_runs(store, warn)
        statuses = budget.list_budgets(store, TimeZone(), now_ms())
    finally:
        store.close()
    projects = (None, project, os.path.realpath(project))
    applicable = [status for status in statuses if status.project in projects]
    return min(applicable, key=lambda status: status.limit_nano - status.spent_nano, default=None)


def _import_new_runs(store: Store, warn: Callable[[str], None]) -> None:
    """Import runs started without steno: they count too."""
    from ..ledger import importer  # lazy: loads every reader

    try:
        importer.import_new(store, warn, requests_only=True)
    except LedgerError as error:
        warn(f"budgets checked without new runs: {error}")
