"""What the files of a session say, as values, and the sums over them. Pure."""

from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import astuple

from ..units import DAY_MS
from .rows import RequestRow

TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output")
INPUT_COLUMNS = TOKEN_COLUMNS[:3]
COUNTERS = (*TOKEN_COLUMNS, "reasoning")
counters_of = attrgetter(*COUNTERS)
RUN_SLACK_MS = 5_000  # runs start before their first line, and end after their last one
UNTIMED_MS = 2 * DAY_MS  # a run whose times are those of a file is not older


class Share(Struct):
    """Tokens and cost of one model; None: unknown."""

    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cost_nano: int | None = None


def add_shares(first: Share, second: Share) -> Share:
    """The sum; a counter is unknown if it is in one of both."""
    pairs = zip(astuple(first), astuple(second), strict=True)
    return Share(*(None if None in pair else sum(pair) for pair in pairs))


class RunTotal(Struct):
    """What a run reports of itself.

    `is_session`: the total includes earlier runs of its session. `is_timed`: its times are the
    agent's or steno's, not those of a file; `is_own_recording`: steno's. `is_partial`: its
    figures are a lower bound.
    """

    run: str
    started_at: int
    ended_at: int
    total: Share
    models: dict[str, Share]
    main_model: str | None
    cost_source: str
    requests: int | None = None
    is_session: bool = False
    is_timed: bool = True
    is_own_recording: bool = False
    is_partial: bool = False
    is_uncertain: bool = False  # the agent may count its requests twice
    context_limit: int | None = None  # reported by the agent
    needs_session_total: bool = False  # its own part of the agent's total is unknown


class Checkpoint(Struct):
    """A running total of a session, at the time of the line before it, or at the end of a run."""

    at: int
    total: Share
    models: dict[str, Share]
    run: str | None = None
    requests: int | None = None


class Witnesses(Struct):
    """All that is known of one session.

    `shown` has the run whose own output shows a request. `strangers`: requests of other sessions in
    the same folder, at the time of its runs. `inherited`: requests of the sessions
    that share some with this one, with the adjustments before a fork; `base` is the running total
    with which a fork began.
    """

    requests: list[RequestRow]
    runs: list[RunTotal]
    has_own_ids: bool = False  # the agent's output and files name requests differently
    strangers: list[RequestRow] = []
    checkpoints: list[Checkpoint] = []
    inherited: list[RequestRow] = []
    base: Checkpoint | None = None


class Adjustment(Struct):
    """Tokens and cost that no request of the ledger has; `requests` is how many they stand for."""

    run: str | None
    model: str
    at: int
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    reasoning: int = 0
    cost_nano: int | None = None
    requests: int = 0
    is_partial: bool = False

    @property
    def changes_a_sum(self) -> bool:
        return any((*counters_of(self), self.cost_nano, self.requests, self.is_partial))


class Joined(Struct):
    """The run of each request, the adjustments, and the requests whose output stays unknown."""

    runs: dict[int, str] = {}
    costs: dict[int, int] = {}  # of requests whose run reports its cost
    adjustments: list[Adjustment] = []
    covered: set[int] = field(default_factory=set)  # a total includes their final output
    copies: dict[int, int] = {}  # requests of a session file that a run shows under another id


# -- sums ------------------------------------------------------------------------------------------


def sum_rows(rows: Iterable[RequestRow]) -> dict[str, int]:
    counts = [counters_of(row) for row in rows]
    if not counts:
        return dict.fromkeys(COUNTERS, 0)
    return dict(zip(COUNTERS, map(sum, zip(*counts, strict=True)), strict=True))


def inputs_of(row: RequestRow) -> tuple[int, int, int]:
    return (row.input, row.cache_write, row.cache_read)


def add_inputs(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(first, second, strict=True)))


def as_row(part: Adjustment) -> RequestRow:
    return RequestRow(
        id=-1,
        agent="",
        session="",
        run=part.run,
        kind="rest",
        message=None,
        parent=None,
        model=part.model,
        at=part.at,
        input=part.input,
        cache_write=part.cache_write,
        cache_read=part.cache_read,
        output=part.output,
        reasoning=part.reasoning,
        cache_write_1h=0,
        cost_nano=part.cost_nano,
        saved_nano=0,
        source="",
        requests=part.requests,
    )
