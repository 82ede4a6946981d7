"""The processes of one run, wherever they went: found by mark, by session, by descent, by what they hold open, and
by having been seen before.

It finds and signals. When to do so is decided elsewhere.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence

from .command import Orphan
from .kin import ListProcesses, ProcessInfo, can_write_to, command_line_of, send_signal
from .wheel import EventLoop, Timer

ORPHAN_POLL_SECONDS = 0.1  # seconds between looks at what is left


def collect_tree(everybody: Iterable[ProcessInfo], belongs: Callable[[ProcessInfo], bool]) -> list[ProcessInfo]:
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
        return kin.sid == self.root_pid or self._known_start_times.get(kin.pid) == kin.start_time or self._has_tag(kin)

    def adopt_writers(self, links: Collection[str], since: int) -> bool:
        """Take in who still holds what the agent was given to write to, though no mark tells; whether there is anybody.

        Nobody who was there before the agent is taken, nor one of our own session: no child of the agent can get into that.
        """
        ours = os.getsid(0)
        held = [kin for kin in self._list_processes() if kin.start_time >= since and kin.sid != ours and can_write_to(kin.pid, links)]
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
        self._timer = self._loop.call_at(min(self._loop.clock() + ORPHAN_POLL_SECONDS, self._step_deadline), self._check)

    def _check(self) -> None:
        over = self._loop.clock() >= self._step_deadline
        if not self._is_any_left() or (over and not self._steps):
            self._on_done()
        elif over:
            self._next_step()
        else:
            self._schedule_check()
            if self._signal == signal.SIGKILL:
                self._send_signal(self._signal, False)  # who was forked between the look and the signal is found now

    def skip_to_last_step(self) -> None:
        """The last step, now."""
        if self._steps:
            self._timer.cancel()
            del self._steps[:-1]
            self._next_step()

    def cancel(self) -> None:
        """It is over."""
        self._timer.cancel()
