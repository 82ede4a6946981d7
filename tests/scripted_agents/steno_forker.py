"""Forks stenos to be killed, by commands on stdin.

`start FILE` (a set-up as JSON) prints a pid. `start FILE FUNCTION` kills that steno with SIGKILL
when this function returns. `kill PID` and `wait PID` print the exit code.

Forked, because starting Python a hundred times would dominate the test.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import msgspec

from steno import pricing
from steno.ledger import run_record, store
from steno.runner.setup import TaskSetup
from steno.runner.task_runner import TaskRunner


def kill_after(function: str) -> None:
    def watch(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_code.co_qualname == function:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


pricing.preload()
_ = run_record, store  # loaded before the forks
for line in sys.stdin:
    command, argument, function = (*line.strip().split(" "), "")[:3]
    if command == "start":
        setup = msgspec.json.decode(Path(argument).read_bytes(), type=TaskSetup)
        pid = os.fork()
        if not pid:
            os.setsid()
            if function:
                kill_after(function)
            TaskRunner(setup).run()
            os._exit(0)
        print(pid, flush=True)
    else:
        if command == "kill":
            os.kill(int(argument), signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(int(argument), 0)[1]), flush=True)
