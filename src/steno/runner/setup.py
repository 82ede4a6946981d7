"""What a task is given: what to ask, how patient to be, how much to spend, where to keep things. Values only."""

from msgspec import Struct, field

from ..agents import LaunchOptions
from ..process import GracePeriods
from .retry_policy import RetryPolicy


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long each thing may take, in seconds; None: for ever. Each has its own end (R3)."""

    first_output: float | None = (
        180.0  # an agent says what it works with within seconds; hooks and slow starts before that
    )
    silence: float | None = (
        360.0  # Claude Code may be silent for 300 s and be well: it repeats a stalled request unseen
    )
    tool_silence: float | None = 3600.0  # silence while a tool runs: builds and tests take long
    after_result: float | None = 30.0  # alive after its result, with nothing left to do
    background: float | None = 600.0  # alive after its result, with work in the background
    timeout: float | None = None  # all of it


class RunBudget(Struct, frozen=True, kw_only=True):
    """What may be spent, by one run or by the whole task."""

    cost: float | None = None  # dollars
    tokens: int | None = None
    warn_at: float = 0.8  # of either: said once


class FallbackAgent(Struct, frozen=True, kw_only=True):
    """An agent that takes over where the one before it cannot go on (R11), and what it is asked then, but for the prompt."""

    agent: str
    program: str
    launch_options: LaunchOptions


class TaskSetup(Struct, frozen=True, kw_only=True):
    """A task, as it is to be carried out."""

    launch_options: LaunchOptions
    agent: str = "claude"
    replay_path: str | None = None  # of the agent `replay`: what it plays
    replay_speed: float = 1.0  # of the agent `replay`: so many times as fast; 0: without waiting
    program: str | None = None  # its path, where it is not simply its name
    version: str | None = None  # of the program, where it is known before the start
    not_found_reason: str | None = (
        None  # why the agent cannot be started at all: the first of those that stand by takes over at once
    )
    fallback_agents: tuple[FallbackAgent, ...] = ()  # agents that take over, in this order
    task_id: str | None = None  # the id of the task, where it was given one before
    cwd: str | None = None
    inherited_env: dict[str, str] | None = None  # what it inherits; None: our own environment
    extra_env: dict[str, str] = field(default_factory=dict)  # what is added to it
    pass_api_keys: bool = True  # hand on the agent's keys
    timeouts: Timeouts = Timeouts()
    grace: GracePeriods = GracePeriods()
    policy: RetryPolicy = RetryPolicy()
    budget: RunBudget = RunBudget()
    keep_orphans: bool = False  # what outlives the agent may stay
    use_heuristics: bool = True
    track_cost: bool = (
        False  # what it costs is followed while it runs, also where no budget asks for that
    )
    ledger: str | None = None
    record: bool = True  # keep a tape and a row in the ledger
    changes: str = "none"  # what is looked at besides what tools tell: none, git (before and after), all (what stirs too)
