"""What the commands share that look at runs while they go on: finding one by the beginning of its id. It never prints."""

from ..errors import LedgerError, StenoError
from ..ledger.queries import runs
from ..ledger.store import ledger_exists, open_ledger
from ..runner.run_registration import RunInfo, active_runs, lost_runs, recover_runs
from .terminal import print_error


def require_active_run(prefix: str, ledger: str | None = None) -> RunInfo:
    """The run that goes on and is meant: by the beginning of its id, its task's or its session's. StenoError if none is."""
    found = select_active_run(prefix)
    if found is None:
        raise StenoError(f"{prefix}: no run of that id is alive{_outcome_hint(prefix, ledger)}")
    return found


def select_active_run(prefix: str) -> RunInfo | None:
    """The same; None if none is alive, StenoError if it could be several."""
    marks = active_runs()
    for name in ("run", "task", "session"):
        found = [
            mark for mark in marks if prefix and (getattr(mark, name) or "").startswith(prefix)
        ]
        exact = [mark for mark in found if getattr(mark, name) == prefix]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            raise runs.ambiguous_prefix_error(prefix, "active runs", [mark.run for mark in found])
    return None


def _outcome_hint(prefix: str, ledger: str | None) -> str:
    """How a run ended that is not alive, as far as the ledger knows."""
    others = "; those that are: steno ps" if active_runs() else ""
    if not has_ledger(ledger):
        return others
    store = open_ledger(ledger)
    try:
        found = runs.find_by_prefix(store, prefix)
        if found is None or found[0] != "runs":
            return others
        verdict = runs.get_run(store, found[1]).verdict
        return f"; it ended: {verdict}" if verdict is not None else "; its steno was killed"
    finally:
        store.close()


def has_ledger(given: str | None) -> bool:
    """Whether there is a ledger: looking at what goes on makes none."""
    return ledger_exists(given)


def recover_finished_runs(ledger: str | None) -> None:
    """See to the runs whose steno was killed, if there are any, and say so."""
    if not lost_runs() or not has_ledger(ledger):
        return
    try:
        store = open_ledger(ledger)
        try:
            for text in recover_runs(store):
                print_error(text)
        finally:
            store.close()
    except LedgerError as problem:
        print_error(f"runs that were cut off are not in the ledger yet: {problem}")


def short_ids(ids: list[str]) -> dict[str, str]:
    """For each id its beginning, long enough to name no other one of them."""
    return runs.unique_prefixes(ids, ids)
