"""What a task is given: what to ask, how patient to be, how much to spend, where to keep things. Values only."""

from msgspec import Struct, field

from ..agents import Ask
from ..process import Grace
from .decide import Policy


class Clocks(Struct, frozen=True, kw_only=True):
    """How long each thing may take, in seconds; None: for ever. Each has its own end (R3)."""

    first_output: float | None = 180.0  # an agent says what it works with within seconds; hooks and slow starts before that
    silence: float | None = 360.0  # Claude Code may be silent for 300 s and be well: it repeats a stalled request unseen
    tool: float | None = 3600.0  # silence while a tool runs: builds and tests take long
    after_result: float | None = 30.0  # alive after its result, with nothing left to do
    background: float | None = 600.0  # alive after its result, with work in the background
    timeout: float | None = None  # all of it


class Budget(Struct, frozen=True, kw_only=True):
    """What may be spent, by one run or by the whole task."""

    cost: float | None = None  # dollars
    tokens: int | None = None
    warn_at: float = 0.8  # of either: said once


class Stand(Struct, frozen=True, kw_only=True):
    """An agent that takes over where the one before it cannot go on (R11), and what it is asked then, but for the prompt."""

    agent: str
    program: str
    ask: Ask


class Setup(Struct, frozen=True, kw_only=True):
    """A task, as it is to be carried out."""

    ask: Ask
    agent: str = "claude"
    tape: str | None = None  # of the agent `replay`: what it plays
    speed: float = 1.0  # of the agent `replay`: so many times as fast; 0: without waiting
    program: str | None = None  # its path, where it is not simply its name
    version: str | None = None  # of the program, where it is known before the start
    absent: str | None = None  # why the agent cannot be started at all: the first of those that stand by takes over at once
    stand_by: tuple[Stand, ...] = ()  # agents that take over, in this order
    task: str | None = None  # the id of the task, where it was given one before
    cwd: str | None = None
    environ: dict[str, str] | None = None  # what it inherits; None: our own environment
    env: dict[str, str] = field(default_factory=dict)  # what is added to it
    keys: bool = True  # hand on the agent's keys
    clocks: Clocks = Clocks()
    grace: Grace = Grace()
    policy: Policy = Policy()
    budget: Budget = Budget()
    leave: bool = False  # what outlives the agent may stay
    advise: bool = True
    priced: bool = False  # what it costs is followed while it runs, also where no budget asks for that
    ledger: str | None = None
    record: bool = True  # keep a tape and a row in the ledger
    changes: str = "none"  # what is looked at besides what tools tell: none, git (before and after), all (what stirs too)
