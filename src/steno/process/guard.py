"""What must end when a steno was killed: a guard that waits beside each steno, and a sweep for when it was killed too.

Both find processes by their mark alone. They never touch a process without one, of another user, or in another
container.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .command import GracePeriods, Orphan
from .family import Escalation, ProcessTree
from .kin import ProcessInfo, is_own_process, list_processes, start_time_of
from .mark import RUN_TAG_VARIABLE, RunTag, parse_run_tags, pid_namespace
from .wheel import EventLoop

# A shell that sleeps in `read` costs a megabyte, a Python ten. A line means that all is well; the end of the pipe
# without one, that the steno is gone, however it went. Signals to the terminal or the service are not for the guard.
WATCHDOG_SCRIPT = 'trap "" HUP INT TERM; read -r word && exit 0; exec "$@"'
CLEANUP_PROGRAM = "from steno.process.guard import main; main()"
_DEFAULT_GRACE = GracePeriods()


class Watchdog:
    """Ends the runs of this steno if it is killed. Where there is no shell there is no guard: the sweep must do."""

    def __init__(self, mark: RunTag) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != RUN_TAG_VARIABLE}
        env = {**inherited, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603  # a fixed script, with our own interpreter and mark
                ["/bin/sh", "-c", WATCHDOG_SCRIPT, "steno-guard", sys.executable, "-c", CLEANUP_PROGRAM, mark.owner()],
                env=env,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """All is well: nothing is left to guard."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def main() -> None:
    """The guard wakes up: its steno is gone, and so must be all that it started, also what it would have left."""
    _terminate_and_wait(lambda kin: any(mark.owner() == sys.argv[1] for mark in parse_run_tags(kin.run_tags)), GracePeriods())


def terminate_orphans(run_id: str | None = None, grace: GracePeriods = _DEFAULT_GRACE) -> list[Orphan]:
    """End the processes of runs whose steno is gone (of one of them, if named), and say which they were.

    For the start of a steno. It waits for their end, if there are any.
    """
    people = list_processes()
    above = _ancestor_pids(people)

    def lost(kin: ProcessInfo) -> bool:
        found = parse_run_tags(kin.run_tags) if kin.run_tags and kin.pid not in above and is_own_process(kin) else []
        return any(_is_orphaned(mark) for mark in found if mark.run_id == (run_id or mark.run_id))

    return _terminate_and_wait(lost, grace) if any(map(lost, people)) else []


def _is_orphaned(mark: RunTag) -> bool:
    """Whether its steno is gone, and it is not meant to stay. Of another container nothing can be said."""
    return not mark.keep_orphans and mark.pid_namespace == pid_namespace() and start_time_of(mark.steno_pid) != mark.steno_start_time


def _ancestor_pids(people: list[ProcessInfo]) -> set[int]:
    """Ourselves and those who started us: a steno that was started by something left over does not end itself."""
    parents, found, pid = {kin.pid: kin.parent_pid for kin in people}, set(), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def _terminate_and_wait(lost: Callable[[ProcessInfo], bool], grace: GracePeriods) -> list[Orphan]:
    """Terminate, then kill, and wait for it."""
    wheel, family, open_ = EventLoop(), ProcessTree(list_processes, lost), [True]
    steps = ((signal.SIGTERM, grace.terminate), (signal.SIGKILL, grace.kill))
    Escalation(wheel, steps, lambda number, _: family.send_signal(number), lambda: bool(family.find_alive()), open_.clear).start()
    while open_:
        wheel.step()
    wheel.close()
    return family.orphans
