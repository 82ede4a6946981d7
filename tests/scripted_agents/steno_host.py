"""A steno to be killed: runs a command with a run id. Arguments: id, guarded|unguarded, command."""

import sys

from steno.process import ProcessCommand, ProcessLoop, process_tree
from steno.recording.format import Record

run_id, mode, *command = sys.argv[1:]
if mode == "unguarded":
    process_tree.WATCHDOG_SCRIPT = "exit 0"


def show(record: Record) -> None:
    print(record.code, record.data.decode(), flush=True)


with ProcessLoop() as loop:
    loop.start(ProcessCommand(tuple(command)), show, run_id=run_id)
    loop.run()
