"""The only room that starts or kills a process: one loop for any number of runs, told as ticks.

    with Loop() as loop:
        child = loop.start(Command(("claude", "-p", "hello")), on_tick)
        loop.after(60, lambda: child.stop("timeout"))
        loop.run()

It never interprets what an agent prints. Windows is not served; where a system has no descriptors for processes
(macOS), an exit is noticed by looking for it.
"""

from .child import ChildProcess
from .command import GracePeriods, Orphan, ProcessCommand
from .event_loop import Timer
from .process_tree import terminate_orphans
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
