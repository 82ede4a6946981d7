"""The library's functions that read a recording; those that run an agent are in `run`."""

from collections.abc import Iterator

from ..agents import get_agent
from ..event import Event
from ..pricing import price
from ..recording.open import Source, open_recording
from ..report import Report


def read(source: Source, *, agent: str | None = None, advice: bool = True) -> Report:
    """The report of a recording.

    `source` is a path (a file, plain or compressed with gzip or zstd, or a folder with `stdout`),
    bytes, a binary file, or an iterable of lines. `agent` overrides the detection of the agent.
    `advice=False` disables the heuristics for open questions and background work. A failed agent
    never raises; an unreadable source raises SourceError.
    """
    recording = open_recording(source)
    parser = recording.read(get_agent(agent))
    parser.accumulator.facts.use_heuristics = advice
    return parser.report(recording.name, price)


def events(source: Source, *, agent: str | None = None) -> Iterator[Event]:
    """The events of a recording, one by one, in constant memory."""
    return open_recording(source).events(get_agent(agent))
