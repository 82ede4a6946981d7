"""A pure model of sessions: runs, their requests, who saw them, and what they cost in truth.

A `Case` is data: it can be drawn at random, kept as JSON, and reduced. The writers in
`claude_witness.py` and its neighbours turn it into the files of a real program.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from tests.support.modelserver import Usage

COUNTERS = ("input", "cache_write", "cache_read", "output")
WEB_SEARCH_NANO = 10_000_000  # $10 per 1,000 searches
# Nano-dollars per token of input, cache write, cache read and output; None: in no price table.
PRICES: dict[str, tuple[int, int, int, int] | None] = {
    "claude-opus-5-5": (4_000, 5_000, 200, 20_000),
    "claude-sonnet-4-6": (3_000, 3_750, 300, 15_000),
    "claude-haiku-4-5-20251001": (1_000, 1_250, 100, 5_000),
    "claude-sonnet-4-20250514": (3_000, 3_750, 300, 15_000),
    "claude-3-5-haiku-20241022": (800, 1_000, 80, 4_000),
    "nobody-knows-it": None,
    "gpt-5": (1_250, 1_250, 125, 10_000),
    "gemini-2.5-pro": (1_250, 1_250, 125, 10_000),
    "coder": None,
}
DAY_MS = 86_400_000
GAPS_MS = (0, 40, 1_000, 4_900, 5_100, 60_000, DAY_MS)


class Figures(Struct, frozen=True):
    """Sums of requests; `cost` in nano-dollars."""

    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    cost: int = 0
    requests: int = 0

    def plus(self, other: Figures) -> Figures:
        return Figures(*(a + b for a, b in zip(values(self), values(other), strict=True)))


def values(figures: Figures) -> tuple[int, ...]:
    return tuple(getattr(figures, name) for name in Figures.__struct_fields__)


def add(parts: Iterable[Figures]) -> Figures:
    total = Figures()
    for part in parts:
        total = total.plus(part)
    return total


class Request(Struct, frozen=True, omit_defaults=True):
    """A request as the model's server counted it.

    `kind`: main or sub (messages), aborted (a message with its first usage only), compact, lost or
    helper (in totals only), warmup (in totals and a subagent's file).
    """

    kind: str
    model: str
    usage: Usage
    ms: int = 1_000
    web: int = 0
    blocks: int = 1
    agent: int = 0  # number of the subagent

    def figures(self, output: int | None = None, has_web: bool = True) -> Figures:
        """What it adds; `output` replaces its own."""
        usage = self.usage
        output = usage.output if output is None else output
        counters = (usage.input, usage.cache_write, usage.cache_read, output)
        rates = PRICES[self.model] or (0, 0, 0, 0)
        cost = sum(count * rate for count, rate in zip(counters, rates, strict=True))
        return Figures(*counters, cost + (self.web * WEB_SEARCH_NANO if has_web else 0), 1)


class Run(Struct, frozen=True, omit_defaults=True):
    """One process. `origin`: the run whose session it continues, None for a new one.

    `end`: result, kill (SIGKILL), term (SIGTERM) or interrupt (SIGINT).
    """

    requests: tuple[Request, ...]
    origin: int | None = None
    is_fork: bool = False
    end: str = "result"
    format: str = "stream"
    gap_ms: int = 1_000
    file_delay_ms: int = 0  # from its end to the time of the file with its output


class Step(Struct, frozen=True, omit_defaults=True):
    """An import of some witnesses; `part`: the percentage of each file that is written so far.

    `is_copy`: under another path. `is_usage_only`: as `steno usage` imports.
    """

    witnesses: tuple[str, ...]
    part: int = 100
    is_copy: bool = False
    is_usage_only: bool = False


class Case(Struct, frozen=True, omit_defaults=True):
    agent: str
    version: str
    runs: tuple[Run, ...]
    steps: tuple[Step, ...]

    @property
    def seen(self) -> set[str]:
        """The witnesses that were imported as a whole."""
        return {name for step in self.steps if step.part == 100 for name in step.witnesses}


# -- sessions ------------------------------------------------------------------------------------


def sessions(runs: tuple[Run, ...], copies_on_resume: bool = False) -> list[list[int]]:
    """The runs of each session, without those that a fork copied."""
    found: list[list[int]] = []
    for number, run in enumerate(runs):
        if run.origin is None or run.is_fork or copies_on_resume:
            found.append([number])
        else:
            next(session for session in found if run.origin in session).append(number)
    return found


def history(runs: tuple[Run, ...], number: int) -> list[int]:
    """The runs whose conversation a run continues, oldest first."""
    found: list[int] = []
    origin = runs[number].origin
    while origin is not None:
        found.insert(0, origin)
        origin = runs[origin].origin
    return found


def start_times(runs: tuple[Run, ...], start_ms: int) -> list[int]:
    """When each run starts: the gap after the end of the one before."""
    times = []
    at = start_ms
    for run in runs:
        at += run.gap_ms
        times.append(at)
        at += duration_ms(run)
    return times


def duration_ms(run: Run) -> int:
    return sum(request.ms for request in run.requests)


# -- drawing -------------------------------------------------------------------------------------


def draw_usage(random: Random, kinds: Kinds, number: int) -> Usage:
    """Figures that are large enough to be told apart in a sum."""
    return Usage(
        random.randint(1, 900),
        random.randint(0, 9_000) if kinds.has_cache_write else 0,
        random.randint(0, 40_000),
        random.randint(2, 2_000) + number,
    )


def draw_runs(random: Random, kinds: Kinds) -> tuple[Run, ...]:
    runs: list[Run] = []
    for number in range(random.randint(1, 5)):
        runs.append(_draw_run(random, kinds, runs, number))
    return tuple(runs)


class Kinds(Struct, frozen=True):
    """What a version has."""

    model: str
    helper: str | None = None
    formats: tuple[str, ...] = ("stream", "json", "verbose")
    ends: tuple[str, ...] = ("result", "kill")
    extra: tuple[str, ...] = ()  # kinds of requests beside main
    can_fork: bool = True
    has_web: bool = False
    has_cache_write: bool = True


def _draw_run(random: Random, kinds: Kinds, runs: list[Run], number: int) -> Run:
    origin: int | None = None
    if runs:
        # The last run of a session: an agent continues where the session is now.
        heads = [session[-1] for session in sessions(tuple(runs))]
        origin = random.choice((*heads, *heads, *heads, None))
    is_fork = origin is not None and kinds.can_fork and random.randint(0, 3) == 3
    end = kinds.ends[max(0, random.randint(-4, len(kinds.ends) - 1))]
    requests = _draw_requests(random, kinds, end, number)
    run = Run(
        requests,
        origin,
        is_fork,
        end,
        random.choice(kinds.formats),
        random.choice(GAPS_MS),
        random.choice((0, 0, 3_000, DAY_MS)),
    )
    if _needs_time(run):
        run = replace(run, file_delay_ms=0)
    if _needs_time(run) or (runs and _needs_time(runs[-1])):
        run = replace(run, gap_ms=max(run.gap_ms, 1_000))
    return run


def _needs_time(run: Run) -> bool:
    """Whether only its time tells which messages are its own: a total of more than messages."""
    return run.format == "json" and any(request.kind != "main" for request in run.requests)


def _draw_requests(random: Random, kinds: Kinds, end: str, number: int) -> tuple[Request, ...]:
    drawn = ["main"] * random.randint(1, 3)
    if kinds.extra:
        drawn += [random.choice(kinds.extra) for _ in range(random.randint(0, 2))]
    if "warmup" in kinds.extra:
        drawn = ["warmup", *drawn]
    order = {"warmup": 0, "helper": 1, "main": 2, "sub": 3, "compact": 4, "lost": 5}
    requests = [
        _draw_request(random, kinds, kind, number * 10 + place)
        for place, kind in enumerate(sorted(drawn, key=lambda kind: order[kind]))
    ]
    # The main thread speaks last.
    last = max(place for place, request in enumerate(requests) if request.kind == "main")
    requests.append(requests.pop(last))
    if end == "interrupt":
        requests.append(_draw_request(random, kinds, "aborted", number * 10 + 9))
    return tuple(requests)


def _draw_request(random: Random, kinds: Kinds, kind: str, number: int) -> Request:
    model = kinds.helper if kind in ("helper", "warmup") and kinds.helper else kinds.model
    if kind in ("main", "sub") and random.randint(0, 9) == 9:
        model = kinds.helper or model
    return Request(
        kind,
        model,
        draw_usage(random, kinds, number),
        random.choice((0, 300, 1_000, 20_000)),
        random.choice((0, 0, 0, 2)) if kind == "main" and kinds.has_web else 0,
        random.choice((1, 1, 2)),
        random.choice((0, 1)) if kind == "sub" else 0,
    )


def draw_steps(random: Random, witnesses: list[str]) -> tuple[Step, ...]:
    """Any non-empty subset, in any order, in pieces, twice."""
    names = [name for name in witnesses if random.randint(0, 1)] or [random.choice(witnesses)]
    random.shuffle(names)
    steps: list[Step] = []
    while names:
        size = random.randint(1, len(names))
        batch, names = tuple(names[:size]), names[size:]
        if random.randint(0, 3) == 3:
            steps.append(Step(batch, random.randint(1, 99)))
        if random.randint(0, 5) == 5:
            steps.append(Step(batch, is_usage_only=True))
        steps.append(Step(batch))
        if random.randint(0, 5) == 5:
            steps.append(Step(batch, is_copy=bool(random.randint(0, 1))))
    return tuple(steps)
