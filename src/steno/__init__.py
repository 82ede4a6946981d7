"""steno reads what a coding agent printed and says what really happened.

    import steno

    report = steno.read("run.jsonl")
    print(report.verdict, report.cost.usd, report.context.text)
    report.raise_for_verdict()

`read` gives the report of a recording, `events` its events one by one; `Reading` is the same for bytes
that come in pieces. Importing does nothing else.
"""

from collections.abc import Iterator

from .events import Event
from .reading import Reading
from .report import Report, RunFailed, SourceError, StenoError
from .source import Source, open_input

__version__ = "0.1.0"
__all__ = ["Event", "Reading", "Report", "RunFailed", "SourceError", "StenoError", "events", "read"]


def read(source: Source, *, agent: str | None = None) -> Report:
    """The report of a recording.

    `source` is a path (a file, plain or packed with gzip or zstd, or a folder that holds `stdout`),
    bytes, a binary file, or an iterable of lines. What the agent did wrong is in the report and never
    raises; a source that cannot be read raises SourceError.
    """
    from .agents import named
    from .prices import price

    given = open_input(source)
    return given.read(named(agent)).report(given.name, price)


def events(source: Source, *, agent: str | None = None) -> Iterator[Event]:
    """The events of a recording, one by one; memory does not grow with its size."""
    from .agents import named

    return open_input(source).events(named(agent))
