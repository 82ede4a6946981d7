"""Stenos that are going to be killed. Reads commands: `start FILE` (a set-up as JSON) prints a pid, `kill PID` how it ended.

`start FILE FUNCTION` is a steno that is killed, by a real SIGKILL, the moment that this function of it returns; `wait PID`
waits for that.

Each steno is forked from this one, which has everything loaded: a hundred starts of Python would be most of the test.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import msgspec

from steno import pricing as prices
from steno.ledger import run_record as record
from steno.ledger import store
from steno.runner.setup import TaskSetup
from steno.runner.task_runner import TaskRunner


def killed_after(function: str) -> None:
    def watch(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_code.co_qualname == function:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


prices.preload()
_ = record, store
for line in sys.stdin:
    what, how, function = (*line.strip().split(" "), "")[:3]
    if what == "start":
        setup = msgspec.json.decode(Path(how).read_bytes(), type=TaskSetup)
        pid = os.fork()
        if not pid:
            os.setsid()
            if function:
                killed_after(function)
            TaskRunner(setup).run()
            os._exit(0)
        print(pid, flush=True)
    else:
        if what == "kill":
            os.kill(int(how), signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(int(how), 0)[1]), flush=True)
