"""steno runs headless coding agents, or reads their output, and reports what happened.

    import steno

    report = steno.read("run.jsonl")
    print(report.verdict, report.cost.usd, report.context.text)
    report.raise_for_verdict()

`read` returns the report of a recording and `events` its events; `RunParser` does both for data
that arrives in chunks. `run` runs an agent and returns its report, `arun` does so without blocking,
`stream` yields the events while it runs. `Ledger` queries all runs so far. `decode_raw` decodes a
`Raw` field of an event. Only these names are public; each is imported on first use.
"""

TYPE_CHECKING = False  # importing `typing` would cost 4 ms
if TYPE_CHECKING:
    from .api import events, read
    from .api.ledger import Ledger, QueryScope
    from .api.run import RunOptions, RunStream, arun, run, stream
    from .codec.decode import decode_raw
    from .errors import LedgerError, RunFailed, SourceError, StenoError
    from .event import Event
    from .ledger.importer import ImportResult
    from .ledger.results import Note, RunSummary, SearchHit, SessionSummary
    from .ledger.totals import ToolCallStats, UsageReport, UsageRow, UsageTotals
    from .recording.parse import RunParser
    from .report import Report, TaskReport, Verdict

__version__ = "0.1.0"
__all__ = [
    "Event",
    "ImportResult",
    "Ledger",
    "LedgerError",
    "Note",
    "QueryScope",
    "Report",
    "RunFailed",
    "RunOptions",
    "RunParser",
    "RunStream",
    "RunSummary",
    "SearchHit",
    "SessionSummary",
    "SourceError",
    "StenoError",
    "TaskReport",
    "ToolCallStats",
    "UsageReport",
    "UsageRow",
    "UsageTotals",
    "Verdict",
    "arun",
    "decode_raw",
    "events",
    "read",
    "run",
    "stream",
]

_EXPORTS = {
    "Event": "event",
    "ImportResult": "ledger.importer",
    "Ledger": "api.ledger",
    "LedgerError": "errors",
    "Note": "ledger.results",
    "QueryScope": "api.ledger",
    "Report": "report",
    "RunFailed": "errors",
    "RunOptions": "api.run",
    "RunParser": "recording.parse",
    "RunStream": "api.run",
    "RunSummary": "ledger.results",
    "SearchHit": "ledger.results",
    "SessionSummary": "ledger.results",
    "SourceError": "errors",
    "StenoError": "errors",
    "TaskReport": "report",
    "ToolCallStats": "ledger.totals",
    "UsageReport": "ledger.totals",
    "UsageRow": "ledger.totals",
    "UsageTotals": "ledger.totals",
    "Verdict": "report",
    "arun": "api.run",
    "decode_raw": "codec.decode",
    "events": "api",
    "read": "api",
    "run": "api.run",
    "stream": "api.run",
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Include names not imported yet, for `help` and completion."""
    return sorted({*globals(), *__all__})
