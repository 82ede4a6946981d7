"""What the commands share that look at runs while they go on: finding one by the beginning of its id. It never prints."""

import os
from pathlib import Path

from ..ledger.ask import runs
from ..ledger.store import default_path, open_ledger
from ..report import LedgerError, StenoError
from ..supervise.live import Live, living, lost, recover
from .terminal import complain

MATCHES = 5  # of an ambiguous prefix that are told
SHORT = 8  # letters of an id that are shown, unless more are needed to name it


def meant(prefix: str, ledger: str | None = None) -> Live:
    """The run that goes on and is meant: by the beginning of its id, its task's or its session's. StenoError if none is."""
    found = fitting(prefix)
    if found is None:
        raise StenoError(f"{prefix}: no run of that id is alive{_what_became(prefix, ledger)}")
    return found


def fitting(prefix: str) -> Live | None:
    """The same; None if none is alive, StenoError if it could be several."""
    marks = living()
    for name in ("run", "task", "session"):
        found = [mark for mark in marks if prefix and (getattr(mark, name) or "").startswith(prefix)]
        exact = [mark for mark in found if getattr(mark, name) == prefix]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            told = ", ".join(mark.run for mark in found[:MATCHES])
            raise StenoError(f"{prefix}: several runs that go on begin like this: {told}{' ...' if len(found) > MATCHES else ''}")
    return None


def _what_became(prefix: str, ledger: str | None) -> str:
    """How a run ended that is not alive, as far as the ledger knows."""
    others = "; those that are: steno ps" if living() else ""
    if not has_ledger(ledger):
        return others
    store = open_ledger(ledger)
    try:
        found = runs.find(store, prefix)
        if found is None or found[0] != "runs":
            return others
        verdict = runs.one(store, found[1]).verdict
        return f"; it ended: {verdict}" if verdict is not None else "; its steno was killed"
    finally:
        store.close()


def has_ledger(given: str | None) -> bool:
    """Whether there is a ledger: looking at what goes on makes none."""
    where = given or os.environ.get("STENO_LEDGER") or str(default_path())
    return "://" in where or Path(where).exists()


def recovered(ledger: str | None) -> None:
    """See to the runs whose steno was killed, if there are any, and say so."""
    if not lost() or not has_ledger(ledger):
        return
    try:
        store = open_ledger(ledger)
        try:
            for text in recover(store):
                complain(text)
        finally:
            store.close()
    except LedgerError as problem:
        complain(f"runs that were cut off are not in the ledger yet: {problem}")


def shortened(ids: list[str]) -> dict[str, str]:
    """For each id its beginning, long enough to name no other one of them."""
    return {id_: _unique(id_, ids) for id_ in ids}


def _unique(id_: str, ids: list[str]) -> str:
    length = SHORT
    while length < len(id_) and sum(other.startswith(id_[:length]) for other in ids) > 1:
        length += 1
    return id_[:length]
