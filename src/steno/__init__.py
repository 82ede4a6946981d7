"""steno reads what a coding agent printed and says what really happened.

    import steno

    report = steno.read("run.jsonl")
    print(report.verdict, report.cost.usd, report.context.text)
    report.raise_for_verdict()

`read` gives the report of a recording, `events` its events one by one; `Reading` is the same for bytes
that come in pieces. `run` runs an agent and gives its report, `arun` does so without blocking, `stream` gives its
events while it runs. `Ledger` answers questions about all the runs so far. `plain` gives the value of a field of an
event that is JSON as the agent wrote it. These are all the public names; each is loaded when it is first asked for, so
that importing does nothing and costs nothing.
"""

TYPE_CHECKING = False  # `typing` itself costs a start 4 ms
if TYPE_CHECKING:
    from .answer.finds import Hit
    from .answer.lists import Note, Run, Session
    from .answer.sums import Line, Sums, ToolSums, Usage
    from .api import events, read
    from .decode import plain
    from .embed import Live, Options, arun, run, stream
    from .event import Event
    from .ledger.pull import Pulled
    from .question import Ledger, Scope
    from .reading import Reading
    from .report import LedgerError, Report, RunFailed, SourceError, StenoError, TaskReport, Verdict

__version__ = "0.1.0"
__all__ = [
    "Event",
    "Hit",
    "Ledger",
    "LedgerError",
    "Line",
    "Live",
    "Note",
    "Options",
    "Pulled",
    "Reading",
    "Report",
    "Run",
    "RunFailed",
    "Scope",
    "Session",
    "SourceError",
    "StenoError",
    "Sums",
    "TaskReport",
    "ToolSums",
    "Usage",
    "Verdict",
    "arun",
    "events",
    "plain",
    "read",
    "run",
    "stream",
]

_HOMES = {
    "Event": "event",
    "Hit": "answer.finds",
    "Ledger": "question",
    "LedgerError": "report",
    "Line": "answer.sums",
    "Live": "embed",
    "Note": "answer.lists",
    "Options": "embed",
    "Pulled": "ledger.pull",
    "Reading": "reading",
    "Report": "report",
    "Run": "answer.lists",
    "RunFailed": "report",
    "Scope": "question",
    "Session": "answer.lists",
    "SourceError": "report",
    "StenoError": "report",
    "Sums": "answer.sums",
    "TaskReport": "report",
    "ToolSums": "answer.sums",
    "Usage": "answer.sums",
    "Verdict": "report",
    "arun": "embed",
    "events": "api",
    "plain": "decode",
    "read": "api",
    "run": "embed",
    "stream": "embed",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Also what is not loaded yet: `help` and a shell's completion ask for this."""
    return sorted({*globals(), *__all__})
