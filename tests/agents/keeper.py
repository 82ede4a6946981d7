"""Stenos that are going to be killed. Reads commands: `start FILE` (a set-up as JSON) prints a pid, `kill PID` how it ended.

Each steno is forked from this one, which has everything loaded: a hundred starts of Python would be most of the test.
"""

import os
import signal
import sys
from pathlib import Path

import msgspec

from steno import prices
from steno.ledger import record, store
from steno.process import Loop
from steno.supervise.task import Task
from steno.supervise.values import Setup


def carry_out(setup: Setup) -> None:
    with Loop() as loop:
        task = Task(loop, setup).start()
        loop.run(until=lambda: task.over)


prices.ready()
_ = record, store
for line in sys.stdin:
    what, how = (*line.strip().split(" ", 1), "")[:2]
    if what == "start":
        setup = msgspec.json.decode(Path(how).read_bytes(), type=Setup)
        pid = os.fork()
        if not pid:
            os.setsid()
            carry_out(setup)
            os._exit(0)
        print(pid, flush=True)
    else:
        os.kill(int(how), signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(int(how), 0)[1]), flush=True)
