"""A steno that is going to be killed: runs a command under a run id. Arguments: id, guarded or unguarded, command."""

import sys

from steno.process import ProcessCommand, ProcessLoop
from steno.process import process_tree as guard
from steno.recording.format import Record

run_id, how, *command = sys.argv[1:]
if how == "unguarded":
    guard.WATCHDOG_SCRIPT = "exit 0"


def tell(tick: Record) -> None:
    print(tick.code, tick.data.decode(), flush=True)


with ProcessLoop() as loop:
    loop.start(ProcessCommand(tuple(command)), tell, run_id=run_id)
    loop.run()
