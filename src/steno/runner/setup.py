"""The setup of a task: prompt, limits, budgets, storage. Values only."""

from msgspec import Struct, field

from ..agents import LaunchOptions
from ..config import SETTINGS_BY_NAME
from ..process import GracePeriods
from .retry_policy import RetryPolicy

MAX_PERMISSION_SECONDS = 86_400.0  # a run waits no longer for a person


class Timeouts(Struct, frozen=True, kw_only=True):
    """Time limits of an attempt in seconds; None: unlimited."""

    # An agent reports its configuration within seconds; hooks and slow starts come before that.
    first_output: float | None = SETTINGS_BY_NAME["first_output"].default
    # Claude Code repeats a stalled request without output, and may be silent for 300 s.
    silence: float | None = SETTINGS_BY_NAME["silence"].default
    # Silence while a tool runs: builds and tests take long.
    tool_silence: float | None = SETTINGS_BY_NAME["tool_silence"].default
    # Still running after its result, without background work and with it.
    after_result: float | None = SETTINGS_BY_NAME["after_result"].default
    background: float | None = SETTINGS_BY_NAME["background"].default
    timeout: float | None = SETTINGS_BY_NAME["timeout"].default  # the whole attempt


class RunBudget(Struct, frozen=True, kw_only=True):
    """Spending limits of one run or of a whole task."""

    cost: float | None = None  # dollars
    tokens: int | None = None
    turns: int | None = None  # requests of the main thread; None: the attempt's limit is the task's
    warn_at: float = SETTINGS_BY_NAME["warn_at"].default  # fraction of each; reported once


class FallbackAgent(Struct, frozen=True, kw_only=True):
    """An agent that takes over when the one before it is unavailable; options without a prompt."""

    agent: str
    program: str
    launch_options: LaunchOptions


class TaskSetup(Struct, frozen=True, kw_only=True):
    """A task, ready to run."""

    launch_options: LaunchOptions
    agent: str = "claude"
    replay_path: str | None = None  # the recording for the agent `replay`
    replay_speed: float = 1.0  # factor for the agent `replay`; 0: no delays
    program: str | None = None  # path, if it differs from the agent's name
    not_found_reason: str | None = None  # the first agent can't be started; use a fallback
    fallback_agents: tuple[FallbackAgent, ...] = ()  # in this order
    task_id: str | None = None  # if assigned before
    name: str | None = None  # of the task's runs
    tags: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    inherited_env: dict[str, str] | None = None  # None: our own environment
    extra_env: dict[str, str] = field(default_factory=dict)
    pass_api_keys: bool = True
    timeouts: Timeouts = Timeouts()
    grace: GracePeriods = GracePeriods()
    policy: RetryPolicy = RetryPolicy()
    budget: RunBudget = RunBudget()
    alert_at: tuple[float, ...] = SETTINGS_BY_NAME["alert_at"].default  # fractions of the context
    keep_orphans: bool = False  # leave processes running that outlive the agent
    use_heuristics: bool = True
    track_cost: bool = False  # compute the cost while running, also without a budget
    denied_before: str | None = None  # the calls that were denied to the task's last run
    ledger: str | None = None
    record: bool = True  # write a recording and a ledger row
    changes: str = "none"  # detect file changes by: none, git (before and after), all (watcher too)
    undo_days: int = 30  # git snapshots are kept for so many days; 0: none are kept
    undo_runs: int = 100  # and for so many runs
