"""Start, watch and kill processes: one event loop for any number of runs, output as records.

    with ProcessLoop() as loop:
        child = loop.start(ProcessCommand(("claude", "-p", "hello")), on_record)
        loop.call_later(60, lambda: child.stop("timeout"))
        loop.run()

Output is never interpreted here. Windows is not supported; on systems without pidfd (macOS) exits
are detected by polling.
"""

from .child import ChildProcess, ProcessCommand
from .event_loop import Timer
from .process_tree import GracePeriods, Orphan, terminate_orphans
from .supervisor import ProcessLoop

__all__ = [
    "ChildProcess",
    "GracePeriods",
    "Orphan",
    "ProcessCommand",
    "ProcessLoop",
    "Timer",
    "terminate_orphans",
]
