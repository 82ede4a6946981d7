"""Rows of the fleet: tasks, batches and workers, and the states of a task."""

from msgspec import Struct

# waiting: in the queue; held: waits for dependencies; blocked: a dependency failed, or the batch's
# budget is used up; parked: its workers died too often.
STATES = ("held", "waiting", "running", "done", "failed", "blocked", "cancelled", "parked")
FINAL_STATES = ("done", "failed", "blocked", "cancelled", "parked")
FAILED_STATES = ("failed", "blocked", "parked")  # neither a success nor stopped by a person
RETRYABLE_STATES = ("failed", "blocked", "cancelled", "parked")
BUDGET_REASON = "budget of the batch used up"
DEPENDENCY_REASON = "a task it depends on did not succeed"
LOST = "lost"  # state of a worker whose lease has expired
PARKED_REASON = "parked: its worker died, and so did those that took it over"


class TaskRow(Struct, frozen=True):
    """A task as it stands."""

    id: str
    batch: str
    number: int
    name: str
    agent: str
    model: str | None
    state: str
    generation: int
    takeovers: int
    worker: str | None
    host: str | None
    cwd: str | None
    session: str | None
    run: str | None
    verdict: str | None
    error: str | None
    cost_nano: int | None
    reserved_nano: int | None
    tokens: int | None
    queued_at: int | None
    admitted_at: int | None  # the last start; `started_at` is the first
    started_at: int | None
    ended_at: int | None

    @property
    def workflow(self) -> str:
        """The id of its workflow; another one for each retry."""
        return f"{self.id}-{self.generation}"

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_failed(self) -> bool:
        return self.state in FAILED_STATES

    @property
    def reason(self) -> str | None:
        """Why it did not succeed, without a state that it repeats."""
        error = self.error or ""
        return None if error == self.state else error.removeprefix(f"{self.state}: ") or None


class BatchRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    source: str | None = None
    created_at: int = 0
    jobs: int | None = None
    rate_count: int | None = None
    rate_seconds: float | None = None
    budget_nano: int | None = None


class WorkerRow(Struct, frozen=True):
    id: str
    host: str
    pid: int
    jobs: int
    started_at: int
    seen_at: int
    lease_ms: int
    state: str  # active, draining, LOST
