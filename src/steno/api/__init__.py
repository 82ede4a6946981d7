"""The calls of the library that read a recording. They only join the rooms; those that run an agent stand in `embed`."""

from collections.abc import Iterator

from ..agents import get_agent
from ..event import Event
from ..pricing import price
from ..recording.open import Source, open_recording
from ..report import Report


def read(source: Source, *, agent: str | None = None, advice: bool = True) -> Report:
    """The report of a recording.

    `source` is a path (a file, plain or packed with gzip or zstd, or a folder that holds `stdout`),
    bytes, a binary file, or an iterable of lines. What the agent did wrong is in the report and never
    raises; a source that cannot be read raises SourceError. `agent` names the agent where the bytes must not
    tell; without `advice` the run is judged without `interactive` and `background_task`.
    """
    given = open_recording(source)
    reading = given.read(get_agent(agent))
    reading.accumulator.facts.use_heuristics = advice
    return reading.report(given.name, price)


def events(source: Source, *, agent: str | None = None) -> Iterator[Event]:
    """The events of a recording, one by one; memory does not grow with its size."""
    return open_recording(source).events(get_agent(agent))
