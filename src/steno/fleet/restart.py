"""How a task starts again: the end of its earlier runs, and the prompt of the next one."""

from collections.abc import Iterator

from msgspec import Struct

from ..ledger.protocol import Store, query_column
from ..ledger.queries.runs import load_report
from ..ledger.store import open_ledger
from ..report import Report, denied_before
from .rows import TaskRow
from .spec import RetryRequest

MAX_EARLIER_RUNS = 20  # looked at for calls that were denied
CUT_OFF_VERDICTS = ("interrupted", "killed", "no_result")
ASKS = "asks: "  # how the reason of a run with an open question begins
CHECK = "Check what is done already, then finish it."


class Restart(Struct, frozen=True):
    """The report of a task's last run, if known; calls that are still denied; what was given."""

    last: Report | None = None
    denied: str | None = None
    request: RetryRequest = RetryRequest()

    @property
    def is_cut_off(self) -> bool:
        """Whether the last run ended before its agent did, or nothing is known of it."""
        return self.last is None or self.last.verdict in CUT_OFF_VERDICTS


def read_restart(ledger: str | None, task: TaskRow, request: RetryRequest) -> Restart:
    """What the ledger knows of the runs of a task that was started before."""
    if task.generation == 1 and task.run is None:
        return Restart()
    store = open_ledger(ledger)
    try:
        sql = (
            "SELECT id FROM runs WHERE task = ? ORDER BY started_at DESC NULLS LAST, "
            f"attempt DESC LIMIT {MAX_EARLIER_RUNS}"
        )
        ids = query_column(store, sql, (task.id,))
        last = load_report(store, ids[0]) if ids else None
        return Restart(last, denied_before(_reports(store, ids)), request)
    finally:
        store.close()


def _reports(store: Store, ids: list[str]) -> Iterator[Report]:
    """The stored reports, one by one: the first often says enough."""
    for id_ in ids:
        report = load_report(store, id_)
        if report is not None:
            yield report


def restart_prompt(prompt: str, restart: Restart, *, is_resumed: bool) -> str:
    """The prompt of a task that is started again: what happened before, then the task.

    A new session after a run that was cut off begins with the task alone.
    """
    happened = []
    if restart.denied is not None:
        happened.append(_denial(restart.denied, restart.request))
    elif is_resumed or not restart.is_cut_off:
        happened.append(_end(restart))
    if restart.last is not None and restart.request.answer is not None:
        happened.append(f"The answer: {restart.request.answer}")
    return "\n".join([*happened, CHECK, "", prompt]) if happened else prompt


def _denial(denied: str, request: RetryRequest) -> str:
    permitted = "Still not permitted: find another way, or say what you need."
    if request.allow:
        permitted = f"Permitted now: {', '.join(request.allow)}."
    return f"The last run of this task was not finished: {denied}. {permitted}"


def _end(restart: Restart) -> str:
    last = restart.last
    if last is None or restart.is_cut_off:
        return "The run that worked on this task was cut off."
    if last.reason is None:  # a policy was broken
        return "The result of the last run of this task was not accepted."
    if last.verdict != "interactive":
        return f"The last run of this task failed: {last.reason.rstrip('.')}."
    question = f"The last run of this task ended with a question: {last.reason.removeprefix(ASKS)}"
    if restart.request.answer is not None:
        return question
    return f"{question}\nNobody answers it: decide yourself."
