"""The processes of one run, wherever they went: found by mark, by session, by descent, by what they hold open, and
by having been seen before.

It finds and signals. When to do so is decided elsewhere.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence

from .command import Orphan
from .kin import Census, Kin, command, send, writes
from .wheel import Timer, Wheel

LEFT_POLL = 0.1  # seconds between looks at what is left


def descent(everybody: Iterable[Kin], belongs: Callable[[Kin], bool]) -> list[Kin]:
    """Those who belong and all their descendants, the eldest first; never ourselves."""
    people = [kin for kin in everybody if kin.pid != os.getpid()]
    children: dict[int, list[Kin]] = {}
    for kin in people:
        children.setdefault(kin.parent, []).append(kin)
    found: dict[int, Kin] = {}
    waiting = [kin for kin in people if belongs(kin)]
    while waiting:
        kin = waiting.pop()
        if kin.pid not in found:
            found[kin.pid] = kin
            waiting += children.get(kin.pid, ())
    return sorted(found.values(), key=lambda kin: (kin.born, kin.pid))


class Family:
    """Processes that belong together. `root` is the agent's pid until it is waited for: nobody else has it until then."""

    def __init__(self, census: Census, marked: Callable[[Kin], bool]) -> None:
        self.root: int | None = None
        self.orphans: list[Orphan] = []
        self._census, self._marked = census, marked
        self._known: dict[int, int] = {}

    def look(self) -> list[Kin]:
        """All that live, now. Who was found once is known by pid and birth, whatever it does next."""
        found = descent(self._census(), self._belongs)
        self._known = {kin.pid: kin.born for kin in found}
        return found

    def _belongs(self, kin: Kin) -> bool:
        return kin.session == self.root or self._known.get(kin.pid) == kin.born or self._marked(kin)

    def adopt(self, links: Collection[str], since: int) -> bool:
        """Take in who still holds what the agent was given to write to, though no mark tells; whether there is anybody.

        Nobody who was there before the agent is taken, nor one of our own session: no child of the agent can get into that.
        """
        ours = os.getsid(0)
        held = [kin for kin in self._census() if kin.born >= since and kin.session != ours and writes(kin.pid, links)]
        self._known |= {kin.pid: kin.born for kin in held}
        return bool(held)

    def signal(self, number: int) -> None:
        """Send it to all of them."""
        for kin in self.look():
            if self.root is None or (number == signal.SIGKILL and kin.pid != self.root):
                self._list(kin, number)
            send(kin, number)

    def keep(self) -> None:
        """List those who are there, and let them be."""
        for kin in self.look():
            self._list(kin, None)

    def _list(self, kin: Kin, number: int | None) -> None:
        if all(orphan.pid != kin.pid for orphan in self.orphans):
            self.orphans.append(Orphan(kin.pid, command(kin.pid), number and int(number)))


class Escalation:
    """One signal after the other, each after its grace, until nobody is left; `done` also when nothing helped."""

    def __init__(
        self,
        wheel: Wheel,
        steps: Sequence[tuple[int, float]],
        press: Callable[[int, bool], None],  # send it; True: for the first time
        left: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._wheel, self._press, self._left, self._done = wheel, press, left, done
        self._steps = list(steps)
        self._timer = Timer(0.0, None)

    def start(self) -> "Escalation":
        """The first step, now."""
        self._next()
        return self

    def _next(self) -> None:
        self._number, grace = self._steps.pop(0)
        self._until = self._wheel.clock() + grace
        self._wait()
        self._press(self._number, True)

    def _wait(self) -> None:
        self._timer = self._wheel.at(min(self._wheel.clock() + LEFT_POLL, self._until), self._check)

    def _check(self) -> None:
        over = self._wheel.clock() >= self._until
        if not self._left() or (over and not self._steps):
            self._done()
        elif over:
            self._next()
        else:
            self._wait()
            if self._number == signal.SIGKILL:
                self._press(self._number, False)  # who was forked between the look and the signal is found now

    def hurry(self) -> None:
        """The last step, now."""
        if self._steps:
            self._timer.cancel()
            del self._steps[:-1]
            self._next()

    def cancel(self) -> None:
        """It is over."""
        self._timer.cancel()
