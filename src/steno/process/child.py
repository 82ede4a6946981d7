"""One run of an agent: starts it, hands on what comes out of it as ticks, and sees it to its end.

Everything is a tick, in order: bytes of stdout and stderr, each signal that we sent, and last the exit, when the
output is read and nothing of the run is left. It never looks at what the agent says, and never waits by itself.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from ..recording.format import Record
from .command import GracePeriods, Orphan, ProcessCommand
from .event_loop import EventLoop, Timer
from .process_table import RUN_TAG_VARIABLE, ListProcesses, RunTag, append_tag, start_time_of
from .process_tree import ORPHAN_POLL_SECONDS, Escalation, ProcessTree
from .streams import FileTail, PipeReader, StdinWriter

OnRecord = Callable[[Record], None]

EXIT_POLL_SECONDS = (
    0.05  # seconds between looks for an exit where the system gives no descriptor for a process
)
EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE = (
    127,
    126,
)  # what a shell says of a program that is not there, and of one that does not start


class ChildProcess:
    """A run. `pid` is None if it did not start, `exit_code` until it exited; `over`: nothing is left of it."""

    def __init__(
        self,
        wheel: EventLoop,
        census: ListProcesses,
        command: ProcessCommand,
        mark: RunTag,
        on_tick: OnRecord,
        grace: GracePeriods,
        gone: Callable[[], None],
    ) -> None:
        self.command, self.run_tag, self.grace = command, mark, grace
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.is_finished = False
        self.has_stdout = False  # something came on stdout
        self.started = self.last_output_at = (
            wheel.clock()
        )  # by the loop's clock: the start, and the last output
        self._loop, self._on_record, self._on_finished = wheel, on_tick, gone
        text = mark.encode()
        self._process_tree = ProcessTree(census, lambda kin: text in kin.run_tags)
        self._stop_reason = ""
        self._exited_at = self._drain_started_at = self.started
        self._escalation: Escalation | None = None
        self._timer = Timer(0.0, None)
        self._outputs: list[PipeReader | FileTail] = []
        self._stdin_writer: StdinWriter | None = None
        self._has_cleared_orphans = self._has_searched_holders = self._is_killing = False
        self._start_time = (
            mark.steno_start_time
        )  # when the agent was, in the system's own unit; at the latest when we were
        self._pidfd = -1
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except (OSError, ValueError) as error:
            self._report_start_failure(error)

    @property
    def orphans(self) -> list[Orphan]:
        """What outlived the agent, or had to be killed with it."""
        return self._process_tree.orphans

    # -- the start --------------------------------------------------------------------------------------

    def _start(self) -> None:
        tail = (
            FileTail(self._loop, self._on_stdout, self._drain_after_exit)
            if self.command.stdout == "file"
            else None
        )
        try:
            process = self._process = self._spawn(tail.writer_fd if tail else subprocess.PIPE)
        except (OSError, ValueError):
            if tail:
                tail.close()
            raise
        finally:
            if tail:
                os.close(tail.writer_fd)
        self.pid = self._process_tree.root_pid = process.pid
        self._start_time = start_time_of(process.pid) or self._start_time
        self._outputs += [tail] if tail else []
        self._outputs += (
            [PipeReader(self._loop, process.stdout, self._on_stdout, self._drain_after_exit)]
            if process.stdout
            else []
        )
        self._outputs += (
            [PipeReader(self._loop, process.stderr, self._on_stderr, self._drain_after_exit)]
            if process.stderr
            else []
        )
        self._stdin_writer = (
            StdinWriter(
                self._loop, process.stdin, self.command.stdin or b"", self.command.keep_stdin_open
            )
            if process.stdin
            else None
        )
        self._watch_for_exit(process.pid)

    def _spawn(self, stdout: int) -> subprocess.Popen[bytes]:
        given = self.command
        outer = os.environ.get(RUN_TAG_VARIABLE, "")
        return subprocess.Popen(  # noqa: S603  # no shell; and starting programs is what this room is for
            given.argv,
            bufsize=0,
            cwd=given.cwd,
            env={
                **(os.environ if given.env is None else given.env),
                RUN_TAG_VARIABLE: append_tag(self.run_tag, outer),
            },
            stdin=subprocess.DEVNULL if given.stdin is None else subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a group of its own: our Ctrl-C is not its Ctrl-C, and all of it can be signalled
        )

    def _watch_for_exit(self, pid: int) -> None:
        """Be told of the exit itself: the end of stdout may come much later, or earlier."""
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # no such call on this system, or forbidden
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll_exit)
        else:
            self._loop.watch(self._pidfd, self._on_exit)

    def _report_start_failure(self, error: Exception) -> None:
        """It did not start: told as a shell would tell it, once the loop turns."""
        folder = (
            isinstance(error, OSError)
            and self.command.cwd is not None
            and error.filename == self.command.cwd
        )
        self.exit_code = (
            EXIT_NOT_FOUND
            if isinstance(error, FileNotFoundError) and not folder
            else EXIT_NOT_EXECUTABLE
        )
        what = (
            f"cannot start in {self.command.cwd}"
            if folder
            else f"cannot start {self.command.argv[0]}"
        )
        reason = (
            os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        )
        self._loop.call_soon(
            lambda: self._on_stderr(f"steno: {what}: {reason}\n".encode("utf-8", "replace"))
        )
        self._loop.call_soon(self._finish)

    # -- ticks ------------------------------------------------------------------------------------------

    def _on_stdout(self, data: bytes) -> None:
        self.last_output_at = self._loop.clock()
        self.has_stdout = True
        self._on_record(Record(self.last_output_at - self.started, "out", data))

    def _on_stderr(self, data: bytes) -> None:
        self.last_output_at = self._loop.clock()
        self._on_record(Record(self.last_output_at - self.started, "err", data))

    def discard_records(self) -> None:
        """No more ticks: whoever took them has failed."""
        self._on_record = lambda tick: None

    # -- words to it ------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """More for its stdin, where that was kept open; False if it is closed."""
        return self._stdin_writer is not None and self._stdin_writer.write(data)

    def close_stdin(self) -> None:
        """Close its stdin, when what was sent is taken."""
        if self._stdin_writer is not None:
            self._stdin_writer.close_when_written()

    # -- an end that we ask for (R4) --------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Ask the run to end: interrupt it, then terminate, at last kill all of it. Asking twice is asking once.

        Each signal is a tick; the first is delivered before this returns.
        """
        grace = self.grace
        self._start_escalation(
            why,
            (signal.SIGINT, grace.interrupt),
            (signal.SIGTERM, grace.terminate),
            (signal.SIGKILL, grace.kill),
        )

    def kill(self, why: str) -> None:
        """End all of it now, also what has outlived the agent: for the second Ctrl-C."""
        self._is_killing = True
        if self._escalation is not None:
            self._escalation.skip_to_last_step()
        elif self.exit_code is None:
            self._start_escalation(why, (signal.SIGKILL, self.grace.kill))
        elif self.pid is not None:
            self._drain_after_exit()

    def _start_escalation(self, why: str, *steps: tuple[int, float]) -> None:
        if self._escalation is None and self.exit_code is None:
            self._stop_reason = why
            self._escalation = Escalation(
                self._loop, steps, self._send_signal, lambda: self.exit_code is None, self._give_up
            )
            self._escalation.start()

    def _send_signal(self, number: int, first: bool) -> None:
        """An interrupt goes to the group, as from a terminal, since some agents are a wrapper; the rest to all of it."""
        now = self._loop.clock()
        if number == signal.SIGINT and self.pid is not None:
            self._process_tree.find_alive()  # who loses its parent by it is known already
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        else:
            self._process_tree.send_signal(number)
        if first:
            self._on_record(
                Record(
                    now - self.started, "stop", self._stop_reason.encode("utf-8", "replace"), number
                )
            )

    def _give_up(self) -> None:
        """Killed and still there, so in a wait that cannot be interrupted: the run is over for us."""
        if self.exit_code is None:
            self.exit_code, self._exited_at = -signal.SIGKILL, self._loop.clock()
            self._process_tree.list_survivors()
            self._finish()

    # -- the exit ---------------------------------------------------------------------------------------

    def _poll_exit(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll_exit)
        else:
            self._on_exit()

    def _on_exit(self) -> None:
        """The agent is gone. Its kin are looked for before it is waited for: until then pid and session stay its own."""
        if self._process is None or self.exit_code is not None:
            return
        self._process_tree.find_alive()
        self.exit_code = self._process.wait()
        self._process_tree.root_pid = None
        self._exited_at = self._drain_started_at = self._loop.clock()
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        self._release_descriptors()
        self._drain_after_exit()

    def _drain_after_exit(self) -> None:
        """Wait for the last output, and for what is left to end by itself, but not for long; then end it."""
        if self.exit_code is None or self.is_finished or self._escalation is not None:
            return
        self._timer.cancel()
        left = not self._has_cleared_orphans and bool(self._process_tree.find_alive())
        if not left:
            for output in self._outputs:
                output.finish()
        if self._should_keep_waiting(left):
            self._timer = self._loop.call_later(ORPHAN_POLL_SECONDS, self._drain_after_exit)
        elif left or self._find_stream_holders():
            self._terminate_orphans()
        else:
            self._finish()

    def _find_stream_holders(self) -> bool:
        """Whether somebody whom we do not know keeps a stream open: a daemon that shed its environment. Asked once."""
        links = {output.open_file_id for output in self._outputs if output.can_have_writers} - {""}
        searched, self._has_searched_holders = self._has_searched_holders, True
        return (
            not searched
            and bool(links)
            and self._process_tree.adopt_writers(links, self._start_time)
        )

    def _should_keep_waiting(self, left: bool) -> bool:
        """Whether output may still come, or what is left may still end by itself."""
        open_ = [output for output in self._outputs if output.is_open]
        if any(output.is_finishing for output in open_):
            return True
        now = self._loop.clock()
        quiet = (
            now - max(self.last_output_at, self._drain_started_at) >= self.grace.quiet
            or now - self._drain_started_at >= self.grace.drain
        )
        return not (quiet or self._is_killing) if left else bool(open_) and not quiet

    def _terminate_orphans(self) -> None:
        """End what outlived the agent, or list it if it is to stay."""
        self._has_cleared_orphans = True
        if self.run_tag.keep_orphans:
            self._process_tree.list_survivors()
            self._drain_after_exit()
            return
        steps = [(signal.SIGTERM, self.grace.terminate), (signal.SIGKILL, self.grace.kill)][
            self._is_killing :
        ]
        self._escalation = Escalation(
            self._loop,
            steps,
            lambda number, _: self._process_tree.send_signal(number),
            lambda: bool(self._process_tree.find_alive()),
            self._on_orphans_gone,
        ).start()

    def _on_orphans_gone(self) -> None:
        self._escalation = None
        self._drain_started_at = self._loop.clock()  # its last words get the same patience
        self._drain_after_exit()

    def _release_descriptors(self) -> None:
        if self._pidfd >= 0:
            self._loop.unwatch(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._stdin_writer is not None:
            self._stdin_writer.close()

    def _finish(self) -> None:
        """Nothing more will come: the exit is the last tick."""
        self.is_finished = True
        self._timer.cancel()
        self._release_descriptors()
        for output in self._outputs:
            output.close()
        self._on_finished()
        at = max(self._exited_at, self.last_output_at)
        self._on_record(Record(at - self.started, "exit", number=self.exit_code))
