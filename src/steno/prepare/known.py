"""What the ledger knows that a run must know before it starts: the session that is meant, and what may still be spent.

A ledger that is not there yet is not made: before a run is started nothing is written.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ..agents import Agent
from ..answer.finds import Budget
from ..ledger.ask import budget as budgets
from ..ledger.ask import runs, sessions
from ..ledger.ask.zones import Zone
from ..ledger.store import Store, default_path, open_ledger
from ..report import LedgerError, StenoError


def opened(where: str | None) -> Store | None:
    """The ledger, if there is one."""
    place = where or os.environ.get("STENO_LEDGER") or str(default_path())
    if "://" not in place and not Path(place).exists():
        return None
    return open_ledger(where)


# -- sessions ------------------------------------------------------------------------------------------------------


class Earlier(Struct, frozen=True):
    """A session to go on with, and the folder that it belongs to, where that is known."""

    id: str
    folder: str | None = None


def session(agent: Agent, given: str, where: str | None, name: str) -> Earlier:
    """The session that is meant by its id, or by the beginning of the id of a run or a session in the ledger."""
    if agent.is_session(given):
        return Earlier(given)
    store = opened(where)
    if store is None:
        raise StenoError(f"{name} {given}: expected the id of a session (a UUID); there is no ledger yet to look for a run in")
    try:
        found = _earlier(store, given, name)
    finally:
        store.close()
    if not agent.is_session(found.id):
        raise StenoError(f"{name} {given}: that run has no session of {agent.name} to go on with")
    return found


def _earlier(store: Store, given: str, name: str) -> Earlier:
    found = runs.find(store, given)
    if found is None:
        raise StenoError(f"{name} {given}: expected the id of a session (a UUID), or the beginning of a run's id in the ledger")
    if found[0] == "runs":
        run = runs.one(store, found[1])
        return Earlier(run.session or "", run.project)
    return Earlier(found[1], sessions.one(store, found[1]).project)


# -- budgets -------------------------------------------------------------------------------------------------------


def left(where: str | None, project: str, say: Callable[[str], None]) -> Budget | None:
    """The budget with the least left of those that hold for a project; None: none is set."""
    store = opened(where)
    if store is None:
        return None
    try:
        if not store.rows("SELECT 1 FROM budgets LIMIT 1"):
            return None
        _freshen(store, say)
        found = budgets.budgets(store, Zone(), time.time_ns() // 1_000_000)
    finally:
        store.close()
    ours = [one for one in found if one.project in (None, project, os.path.realpath(project))]
    return min(ours, key=lambda one: one.limit_nano - one.spent_nano, default=None)


def _freshen(store: Store, say: Callable[[str], None]) -> None:
    """What was spent elsewhere counts too."""
    from ..ledger import pull  # it loads every reader

    try:
        pull.freshen(store, say, sums=True)
    except LedgerError as problem:
        say(f"budgets are checked without what is new: {problem}")
