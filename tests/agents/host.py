"""A steno that is going to be killed: runs a command under a run id. Arguments: id, guarded or unguarded, command."""

import sys

from steno.process import Command, Loop, guard
from steno.tick import Tick

run_id, how, *command = sys.argv[1:]
if how == "unguarded":
    guard.SCRIPT = "exit 0"


def tell(tick: Tick) -> None:
    print(tick.code, tick.data.decode(), flush=True)


with Loop() as loop:
    loop.start(Command(tuple(command)), tell, run_id=run_id)
    loop.run()
