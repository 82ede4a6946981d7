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

from .command import Grace, Orphan
from .family import Escalation, Family
from .kin import Kin, born, everyone, mine
from .mark import NAME, Mark, marks, space
from .wheel import Wheel

# A shell that sleeps in `read` costs a megabyte, a Python ten. A line means that all is well; the end of the pipe
# without one, that the steno is gone, however it went. Signals to the terminal or the service are not for the guard.
SCRIPT = 'trap "" HUP INT TERM; read -r word && exit 0; exec "$@"'
PROGRAM = "from steno.process.guard import main; main()"
_GRACE = Grace()


class Guard:
    """Ends the runs of this steno if it is killed. Where there is no shell there is no guard: the sweep must do."""

    def __init__(self, mark: Mark) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != NAME}
        env = {**inherited, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603  # a fixed script, with our own interpreter and mark
                ["/bin/sh", "-c", SCRIPT, "steno-guard", sys.executable, "-c", PROGRAM, mark.steno()],
                env=env,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """All is well: nothing is left to guard."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def main() -> None:
    """The guard wakes up: its steno is gone, and so must be all that it started, also what it would have left."""
    _end(lambda kin: any(mark.steno() == sys.argv[1] for mark in marks(kin.marks)), Grace())


def sweep(run_id: str | None = None, grace: Grace = _GRACE) -> list[Orphan]:
    """End the processes of runs whose steno is gone (of one of them, if named), and say which they were.

    For the start of a steno. It waits for their end, if there are any.
    """
    people = everyone()
    above = _ancestors(people)

    def lost(kin: Kin) -> bool:
        found = marks(kin.marks) if kin.marks and kin.pid not in above and mine(kin) else []
        return any(_is_lost(mark) for mark in found if mark.run == (run_id or mark.run))

    return _end(lost, grace) if any(map(lost, people)) else []


def _is_lost(mark: Mark) -> bool:
    """Whether its steno is gone, and it is not meant to stay. Of another container nothing can be said."""
    return not mark.keep and mark.space == space() and born(mark.pid) != mark.born


def _ancestors(people: list[Kin]) -> set[int]:
    """Ourselves and those who started us: a steno that was started by something left over does not end itself."""
    parents, found, pid = {kin.pid: kin.parent for kin in people}, set(), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def _end(lost: Callable[[Kin], bool], grace: Grace) -> list[Orphan]:
    """Terminate, then kill, and wait for it."""
    wheel, family, open_ = Wheel(), Family(everyone, lost), [True]
    steps = ((signal.SIGTERM, grace.terminate), (signal.SIGKILL, grace.kill))
    Escalation(wheel, steps, lambda number, _: family.signal(number), lambda: bool(family.look()), open_.clear).start()
    while open_:
        wheel.turn()
    wheel.close()
    return family.orphans
