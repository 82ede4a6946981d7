"""The only room that starts or kills a process: one loop for any number of runs, told as ticks.

    with Loop() as loop:
        child = loop.start(Command(("claude", "-p", "hello")), on_tick)
        loop.after(60, lambda: child.stop("timeout"))
        loop.run()

It never interprets what an agent prints. Windows is not served; where a system has no descriptors for processes
(macOS), an exit is noticed by looking for it.
"""

from .child import Child
from .command import Command, Grace, Orphan
from .guard import sweep
from .loop import Loop
from .wheel import Timer

__all__ = ["Child", "Command", "Grace", "Loop", "Orphan", "Timer", "sweep"]
