"""One run of an agent: starts it, hands on what comes out of it as ticks, and sees it to its end.

Everything is a tick, in order: bytes of stdout and stderr, each signal that we sent, and last the exit, when the
output is read and nothing of the run is left. It never looks at what the agent says, and never waits by itself.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from ..tick import Tick
from .command import Command, Grace, Orphan
from .family import LEFT_POLL, Escalation, Family
from .kin import Census, born
from .mark import NAME, Mark, chained
from .streams import Feed, Pipe, Tail
from .wheel import Timer, Wheel

OnTick = Callable[[Tick], None]

EXIT_POLL = 0.05  # seconds between looks for an exit where the system gives no descriptor for a process
NOT_FOUND, NOT_STARTED = 127, 126  # what a shell says of a program that is not there, and of one that does not start


class Child:
    """A run. `pid` is None if it did not start, `exit_code` until it exited; `over`: nothing is left of it."""

    def __init__(
        self, wheel: Wheel, census: Census, command: Command, mark: Mark, on_tick: OnTick, grace: Grace, gone: Callable[[], None]
    ) -> None:
        self.command, self.mark, self.grace = command, mark, grace
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.over = False
        self.spoke = False  # something came on stdout
        self.started = self.heard = wheel.clock()  # by the loop's clock: the start, and the last output
        self._wheel, self._on_tick, self._gone = wheel, on_tick, gone
        text = mark.text()
        self._family = Family(census, lambda kin: text in kin.marks)
        self._why = ""
        self._exited_at = self._since = self.started
        self._ending: Escalation | None = None
        self._timer = Timer(0.0, None)
        self._outputs: list[Pipe | Tail] = []
        self._feed: Feed | None = None
        self._cleared = self._searched = self._hurried = False
        self._born = mark.born  # when the agent was, in the system's own unit; at the latest when we were
        self._pidfd = -1
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except (OSError, ValueError) as error:
            self._refused(error)

    @property
    def orphans(self) -> list[Orphan]:
        """What outlived the agent, or had to be killed with it."""
        return self._family.orphans

    # -- the start --------------------------------------------------------------------------------------

    def _start(self) -> None:
        tail = Tail(self._wheel, self._out, self._settle) if self.command.stdout == "file" else None
        try:
            process = self._process = self._popen(tail.writer if tail else subprocess.PIPE)
        except (OSError, ValueError):
            if tail:
                tail.close()
            raise
        finally:
            if tail:
                os.close(tail.writer)
        self.pid = self._family.root = process.pid
        self._born = born(process.pid) or self._born
        self._outputs += [tail] if tail else []
        self._outputs += [Pipe(self._wheel, process.stdout, self._out, self._settle)] if process.stdout else []
        self._outputs += [Pipe(self._wheel, process.stderr, self._err, self._settle)] if process.stderr else []
        self._feed = (
            Feed(self._wheel, process.stdin, self.command.stdin or b"", self.command.keep_open) if process.stdin else None
        )
        self._await_exit(process.pid)

    def _popen(self, stdout: int) -> subprocess.Popen[bytes]:
        given = self.command
        outer = os.environ.get(NAME, "")
        return subprocess.Popen(  # noqa: S603  # no shell; and starting programs is what this room is for
            given.argv,
            bufsize=0,
            cwd=given.cwd,
            env={**(os.environ if given.env is None else given.env), NAME: chained(self.mark, outer)},
            stdin=subprocess.DEVNULL if given.stdin is None else subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a group of its own: our Ctrl-C is not its Ctrl-C, and all of it can be signalled
        )

    def _await_exit(self, pid: int) -> None:
        """Be told of the exit itself: the end of stdout may come much later, or earlier."""
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # no such call on this system, or forbidden
            self._wheel.after(EXIT_POLL, self._poll)
        else:
            self._wheel.watch(self._pidfd, self._exited)

    def _refused(self, error: Exception) -> None:
        """It did not start: told as a shell would tell it, once the loop turns."""
        folder = isinstance(error, OSError) and self.command.cwd is not None and error.filename == self.command.cwd
        self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) and not folder else NOT_STARTED
        what = f"cannot start in {self.command.cwd}" if folder else f"cannot start {self.command.argv[0]}"
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        self._wheel.soon(lambda: self._err(f"steno: {what}: {reason}\n".encode("utf-8", "replace")))
        self._wheel.soon(self._finish)

    # -- ticks ------------------------------------------------------------------------------------------

    def _out(self, data: bytes) -> None:
        self.heard = self._wheel.clock()
        self.spoke = True
        self._on_tick(Tick(self.heard - self.started, "out", data))

    def _err(self, data: bytes) -> None:
        self.heard = self._wheel.clock()
        self._on_tick(Tick(self.heard - self.started, "err", data))

    def mute(self) -> None:
        """No more ticks: whoever took them has failed."""
        self._on_tick = lambda tick: None

    # -- words to it ------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """More for its stdin, where that was kept open; False if it is closed."""
        return self._feed is not None and self._feed.add(data)

    def hang_up(self) -> None:
        """Close its stdin, when what was sent is taken."""
        if self._feed is not None:
            self._feed.hang_up()

    # -- an end that we ask for (R4) --------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Ask the run to end: interrupt it, then terminate, at last kill all of it. Asking twice is asking once.

        Each signal is a tick; the first is delivered before this returns.
        """
        grace = self.grace
        self._escalate(why, (signal.SIGINT, grace.interrupt), (signal.SIGTERM, grace.terminate), (signal.SIGKILL, grace.kill))

    def kill(self, why: str) -> None:
        """End all of it now, also what has outlived the agent: for the second Ctrl-C."""
        self._hurried = True
        if self._ending is not None:
            self._ending.hurry()
        elif self.exit_code is None:
            self._escalate(why, (signal.SIGKILL, self.grace.kill))
        elif self.pid is not None:
            self._settle()

    def _escalate(self, why: str, *steps: tuple[int, float]) -> None:
        if self._ending is None and self.exit_code is None:
            self._why = why
            self._ending = Escalation(self._wheel, steps, self._press, lambda: self.exit_code is None, self._give_up)
            self._ending.start()

    def _press(self, number: int, first: bool) -> None:
        """An interrupt goes to the group, as from a terminal, since some agents are a wrapper; the rest to all of it."""
        now = self._wheel.clock()
        if number == signal.SIGINT and self.pid is not None:
            self._family.look()  # who loses its parent by it is known already
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        else:
            self._family.signal(number)
        if first:
            self._on_tick(Tick(now - self.started, "stop", self._why.encode("utf-8", "replace"), number))

    def _give_up(self) -> None:
        """Killed and still there, so in a wait that cannot be interrupted: the run is over for us."""
        if self.exit_code is None:
            self.exit_code, self._exited_at = -signal.SIGKILL, self._wheel.clock()
            self._family.keep()
            self._finish()

    # -- the exit ---------------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._wheel.after(EXIT_POLL, self._poll)
        else:
            self._exited()

    def _exited(self) -> None:
        """The agent is gone. Its kin are looked for before it is waited for: until then pid and session stay its own."""
        if self._process is None or self.exit_code is not None:
            return
        self._family.look()
        self.exit_code = self._process.wait()
        self._family.root = None
        self._exited_at = self._since = self._wheel.clock()
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._release()
        self._settle()

    def _settle(self) -> None:
        """Wait for the last output, and for what is left to end by itself, but not for long; then end it."""
        if self.exit_code is None or self.over or self._ending is not None:
            return
        self._timer.cancel()
        left = not self._cleared and bool(self._family.look())
        if not left:
            for output in self._outputs:
                output.finish()
        if self._patient(left):
            self._timer = self._wheel.after(LEFT_POLL, self._settle)
        elif left or self._held():
            self._clear()
        else:
            self._finish()

    def _held(self) -> bool:
        """Whether somebody whom we do not know keeps a stream open: a daemon that shed its environment. Asked once."""
        links = {output.link for output in self._outputs if output.held} - {""}
        searched, self._searched = self._searched, True
        return not searched and bool(links) and self._family.adopt(links, self._born)

    def _patient(self, left: bool) -> bool:
        """Whether output may still come, or what is left may still end by itself."""
        open_ = [output for output in self._outputs if output.open]
        if any(output.finishing for output in open_):
            return True
        now = self._wheel.clock()
        quiet = now - max(self.heard, self._since) >= self.grace.quiet or now - self._since >= self.grace.drain
        return not (quiet or self._hurried) if left else bool(open_) and not quiet

    def _clear(self) -> None:
        """End what outlived the agent, or list it if it is to stay."""
        self._cleared = True
        if self.mark.keep:
            self._family.keep()
            self._settle()
            return
        steps = [(signal.SIGTERM, self.grace.terminate), (signal.SIGKILL, self.grace.kill)][self._hurried :]
        self._ending = Escalation(
            self._wheel, steps, lambda number, _: self._family.signal(number), lambda: bool(self._family.look()), self._emptied
        ).start()

    def _emptied(self) -> None:
        self._ending = None
        self._since = self._wheel.clock()  # its last words get the same patience
        self._settle()

    def _release(self) -> None:
        if self._pidfd >= 0:
            self._wheel.unwatch(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._feed is not None:
            self._feed.close()

    def _finish(self) -> None:
        """Nothing more will come: the exit is the last tick."""
        self.over = True
        self._timer.cancel()
        self._release()
        for output in self._outputs:
            output.close()
        self._gone()
        at = max(self._exited_at, self.heard)
        self._on_tick(Tick(at - self.started, "exit", number=self.exit_code))
