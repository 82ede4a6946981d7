"""The calls of the library: read a recording, or run an agent and be told. They only join the rooms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from .agents import named
from .event import Event
from .prices import price
from .report import Report, TaskReport
from .source import Source, open_input

if TYPE_CHECKING:
    from typing import Unpack

    from .embed import Live


def read(source: Source, *, agent: str | None = None, advice: bool = True) -> Report:
    """The report of a recording.

    `source` is a path (a file, plain or packed with gzip or zstd, or a folder that holds `stdout`),
    bytes, a binary file, or an iterable of lines. What the agent did wrong is in the report and never
    raises; a source that cannot be read raises SourceError. `agent` names the agent where the bytes must not
    tell; without `advice` the run is judged without `interactive` and `background_task`.
    """
    given = open_input(source)
    reading = given.read(named(agent))
    reading.fold.facts.advise = advice
    return reading.report(given.name, price)


def events(source: Source, *, agent: str | None = None) -> Iterator[Event]:
    """The events of a recording, one by one; memory does not grow with its size."""
    return open_input(source).events(named(agent))


# -- running an agent ----------------------------------------------------------------------------------------------


class Options(TypedDict, total=False):
    """What a run may be told: the options of `steno run`, with underscores. None: as the settings say."""

    agent: str | None
    program: str | None
    model: str | None
    backend: str | None
    cwd: str | None
    session_id: str | None
    resume: str | None
    fork: bool
    continue_: bool
    worktree: str | bool | None
    tape: str | None  # of the agent `replay`: what it plays
    speed: float | None  # of the agent `replay`
    args: Sequence[str]  # the agent's own arguments, as they are
    max_turns: int | None
    permission_mode: str | None
    allow: Sequence[str] | None
    deny: Sequence[str] | None
    system_prompt: str | None
    add_dir: Sequence[str] | None
    mcp_config: Sequence[str] | None
    json_schema: str | Mapping[str, Any] | None
    env: Mapping[str, str] | None
    no_api_key: bool | None
    steer: bool | None
    timeout: float | str | None
    first_output: float | str | None
    silence: float | str | None
    tool_silence: float | str | None
    after_result: float | str | None
    background: float | str | None
    max_cost: float | None
    max_tokens: int | None
    warn_at: float | None
    attempts: int | None
    resume_on: Sequence[str] | None
    on_limit: str | None
    fallback_model: str | None
    fallback_agent: str | Sequence[str] | None
    refresh_at: float | None
    no_advice: bool | None
    ledger: str | None


def run(prompt: str, **options: "Unpack[Options]") -> TaskReport:
    """Run an agent and wait for it: the same as `steno run`, and the same report.

    `options` are those of the command line, with underscores; what is not given comes from the environment and
    from `steno.toml`. How the agent fails is in the report and never raises, also where it is not installed
    (`not_found`) or a budget is used up (`max_budget`); wrong options raise StenoError, before anything is started.
    """
    from .embed import carry_out, prepare

    return carry_out(prepare(prompt, options))


async def arun(prompt: str, **options: "Unpack[Options]") -> TaskReport:
    """The same without blocking: the run turns in a thread of its own.

    When the task that waits is cancelled, the run is ended in order (interrupt, terminate, kill) and recorded,
    and only then is the cancellation passed on. Cancelled a second time, the run is killed.
    """
    from .embed import carried_out

    return await carried_out(prompt, options)


def stream(prompt: str, **options: "Unpack[Options]") -> "Live":
    """The same as an iterator of events while the run goes on; afterwards its `report` is there.

    It starts when the first event is asked for. Leaving the loop early ends the run in order.
    """
    from .embed import Live, prepare

    return Live(prepare(prompt, options))
