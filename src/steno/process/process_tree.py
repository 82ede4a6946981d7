"""The processes of one run, wherever they went: found by mark, by session, by descent, by what they hold open, and
by having been seen before.

It finds and signals. When to do so is decided elsewhere.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from .command import GracePeriods, Orphan
from .event_loop import EventLoop, Timer
from .process_table import (
    RUN_TAG_VARIABLE,
    ListProcesses,
    ProcessInfo,
    RunTag,
    can_write_to,
    command_line_of,
    is_own_process,
    list_processes,
    parse_run_tags,
    pid_namespace,
    send_signal,
    start_time_of,
)

ORPHAN_POLL_SECONDS = 0.1  # seconds between looks at what is left


def collect_tree(
    everybody: Iterable[ProcessInfo], belongs: Callable[[ProcessInfo], bool]
) -> list[ProcessInfo]:
    """Those who belong and all their descendants, the eldest first; never ourselves."""
    people = [kin for kin in everybody if kin.pid != os.getpid()]
    children: dict[int, list[ProcessInfo]] = {}
    for kin in people:
        children.setdefault(kin.parent_pid, []).append(kin)
    found: dict[int, ProcessInfo] = {}
    waiting = [kin for kin in people if belongs(kin)]
    while waiting:
        kin = waiting.pop()
        if kin.pid not in found:
            found[kin.pid] = kin
            waiting += children.get(kin.pid, ())
    return sorted(found.values(), key=lambda kin: (kin.start_time, kin.pid))


class ProcessTree:
    """Processes that belong together. `root` is the agent's pid until it is waited for: nobody else has it until then."""

    def __init__(self, census: ListProcesses, marked: Callable[[ProcessInfo], bool]) -> None:
        self.root_pid: int | None = None
        self.orphans: list[Orphan] = []
        self._list_processes, self._has_tag = census, marked
        self._known_start_times: dict[int, int] = {}

    def find_alive(self) -> list[ProcessInfo]:
        """All that live, now. Who was found once is known by pid and birth, whatever it does next."""
        found = collect_tree(self._list_processes(), self._is_member)
        self._known_start_times = {kin.pid: kin.start_time for kin in found}
        return found

    def _is_member(self, kin: ProcessInfo) -> bool:
        return (
            kin.sid == self.root_pid
            or self._known_start_times.get(kin.pid) == kin.start_time
            or self._has_tag(kin)
        )

    def adopt_writers(self, links: Collection[str], since: int) -> bool:
        """Take in who still holds what the agent was given to write to, though no mark tells; whether there is anybody.

        Nobody who was there before the agent is taken, nor one of our own session: no child of the agent can get into that.
        """
        ours = os.getsid(0)
        held = [
            kin
            for kin in self._list_processes()
            if kin.start_time >= since and kin.sid != ours and can_write_to(kin.pid, links)
        ]
        self._known_start_times |= {kin.pid: kin.start_time for kin in held}
        return bool(held)

    def send_signal(self, number: int) -> None:
        """Send it to all of them."""
        for kin in self.find_alive():
            if self.root_pid is None or (number == signal.SIGKILL and kin.pid != self.root_pid):
                self._add_orphan(kin, number)
            send_signal(kin, number)

    def list_survivors(self) -> None:
        """List those who are there, and let them be."""
        for kin in self.find_alive():
            self._add_orphan(kin, None)

    def _add_orphan(self, kin: ProcessInfo, number: int | None) -> None:
        if all(orphan.pid != kin.pid for orphan in self.orphans):
            self.orphans.append(Orphan(kin.pid, command_line_of(kin.pid), number and int(number)))


class Escalation:
    """One signal after the other, each after its grace, until nobody is left; `done` also when nothing helped."""

    def __init__(
        self,
        wheel: EventLoop,
        steps: Sequence[tuple[int, float]],
        press: Callable[[int, bool], None],  # send it; True: for the first time
        left: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._loop, self._send_signal, self._is_any_left, self._on_done = wheel, press, left, done
        self._steps = list(steps)
        self._timer = Timer(0.0, None)

    def start(self) -> "Escalation":
        """The first step, now."""
        self._next_step()
        return self

    def _next_step(self) -> None:
        self._signal, grace = self._steps.pop(0)
        self._step_deadline = self._loop.clock() + grace
        self._schedule_check()
        self._send_signal(self._signal, True)

    def _schedule_check(self) -> None:
        self._timer = self._loop.call_at(
            min(self._loop.clock() + ORPHAN_POLL_SECONDS, self._step_deadline), self._check
        )

    def _check(self) -> None:
        over = self._loop.clock() >= self._step_deadline
        if not self._is_any_left() or (over and not self._steps):
            self._on_done()
        elif over:
            self._next_step()
        else:
            self._schedule_check()
            if self._signal == signal.SIGKILL:
                self._send_signal(
                    self._signal, False
                )  # who was forked between the look and the signal is found now

    def skip_to_last_step(self) -> None:
        """The last step, now."""
        if self._steps:
            self._timer.cancel()
            del self._steps[:-1]
            self._next_step()

    def cancel(self) -> None:
        """It is over."""
        self._timer.cancel()


# A shell that sleeps in `read` costs a megabyte, a Python ten. A line means that all is well; the end of the pipe
# without one, that the steno is gone, however it went. Signals to the terminal or the service are not for the guard.
WATCHDOG_SCRIPT = 'trap "" HUP INT TERM; read -r word && exit 0; exec "$@"'
CLEANUP_PROGRAM = "from steno.process.process_tree import main; main()"
_DEFAULT_GRACE = GracePeriods()


class Watchdog:
    """Ends the runs of this steno if it is killed. Where there is no shell there is no guard: the sweep must do."""

    def __init__(self, mark: RunTag) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != RUN_TAG_VARIABLE}
        env = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        }
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603  # a fixed script, with our own interpreter and mark
                [
                    "/bin/sh",
                    "-c",
                    WATCHDOG_SCRIPT,
                    "steno-guard",
                    sys.executable,
                    "-c",
                    CLEANUP_PROGRAM,
                    mark.owner(),
                ],
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
    _terminate_and_wait(
        lambda kin: any(mark.owner() == sys.argv[1] for mark in parse_run_tags(kin.run_tags)),
        GracePeriods(),
    )


def terminate_orphans(
    run_id: str | None = None, grace: GracePeriods = _DEFAULT_GRACE
) -> list[Orphan]:
    """End the processes of runs whose steno is gone (of one of them, if named), and say which they were.

    For the start of a steno. It waits for their end, if there are any.
    """
    people = list_processes()
    above = _ancestor_pids(people)

    def lost(kin: ProcessInfo) -> bool:
        found = (
            parse_run_tags(kin.run_tags)
            if kin.run_tags and kin.pid not in above and is_own_process(kin)
            else []
        )
        return any(_is_orphaned(mark) for mark in found if mark.run_id == (run_id or mark.run_id))

    return _terminate_and_wait(lost, grace) if any(map(lost, people)) else []


def _is_orphaned(mark: RunTag) -> bool:
    """Whether its steno is gone, and it is not meant to stay. Of another container nothing can be said."""
    return (
        not mark.keep_orphans
        and mark.pid_namespace == pid_namespace()
        and start_time_of(mark.steno_pid) != mark.steno_start_time
    )


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
    Escalation(
        wheel,
        steps,
        lambda number, _: family.send_signal(number),
        lambda: bool(family.find_alive()),
        open_.clear,
    ).start()
    while open_:
        wheel.step()
    wheel.close()
    return family.orphans
