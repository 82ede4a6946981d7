"""One child process: start it, pass its output on as records, and wait for its exit.

Records come in order: stdout and stderr bytes, each signal sent, and the exit last, when all output
is read and no process of the run is left. The output is never interpreted.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from select import poll
from signal import SIGKILL
from tempfile import TemporaryFile
from threading import RLock
from typing import IO

from msgspec import Struct

from ..recording.format import Record
from .event_loop import EventLoop, Timer
from .process_tree import (
    ORPHAN_POLL_SECONDS,
    CommandGuard,
    Escalation,
    GracePeriods,
    ListProcesses,
    Orphan,
    ProcessTree,
    list_processes,
    start_time_of,
)
from .run_tag import RUN_TAG_VARIABLE, LimitTag, RunTag
from .streams import FileTail, PipeReader, StdinWriter

OnRecord = Callable[[Record], None]

EXIT_POLL_SECONDS = 0.05  # between checks for the exit on systems without pidfd
EXIT_NOT_FOUND = 127  # as in a shell: program not found
EXIT_NOT_EXECUTABLE = 126  # as in a shell: program found, but it cannot be started


class ProcessCommand(Struct, frozen=True):
    """A program to start, without a shell. `env` None: inherited; `stdin` None: /dev/null.

    `stdout` is "pipe", or "file" for programs that lose unread pipe data when they exit (Gemini
    CLI, Qwen Code, OpenCode, old versions of Claude Code): they write to an unlinked file, which
    is read while it grows.
    `keep_stdin_open`: more data may be sent until `ChildProcess.close_stdin`.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] | None = None
    stdin: bytes | None = None
    stdout: str = "pipe"
    keep_stdin_open: bool = False


class ChildProcess:
    """A running child. `pid` is None if the start failed; `is_finished`: no process is left."""

    def __init__(
        self,
        loop: EventLoop,
        list_processes: ListProcesses,
        command: ProcessCommand,
        run_tag: RunTag,
        on_record: OnRecord,
        grace: GracePeriods,
        on_finished: Callable[[], None],
    ) -> None:
        self.command = command
        self.run_tag = run_tag
        self.grace = grace
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.is_finished = False
        self.has_stdout = False  # stdout has printed something
        self.started = loop.clock()
        self.last_output_at = self.started  # by the loop's clock
        self._suspended_before = loop.suspended_seconds  # before the last output
        self._loop = loop
        self._on_record = on_record
        self._on_finished = on_finished
        tag = run_tag.encode()
        limit_tag = self._limit_tag = LimitTag(run_tag)
        self._process_tree = ProcessTree(
            list_processes,
            lambda process: tag in process.run_tags or limit_tag.matches(process.run_tags),
        )
        # Processes that outlived the agent, or were killed with it.
        self.orphans: list[Orphan] = self._process_tree.orphans
        self._stop_reason = ""
        self._exited_at = self.started
        self._drain_started_at = self.started
        self._escalation: Escalation | None = None
        self._timer = Timer(0.0, None)
        self._outputs: list[PipeReader | FileTail] = []
        self._tail: FileTail | None = None  # the output that does not signal its own end
        self._stdin_writer: StdinWriter | None = None
        self._has_cleared_orphans = False
        self._has_searched_holders = False
        self._is_killing = False
        self._start_time = run_tag.steno_start_time  # lower bound until the child's own is known
        self._pidfd = -1
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except (OSError, ValueError) as error:
            self._report_start_failure(error)

    # -- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        tail: FileTail | None = None
        if self.command.stdout == "file":
            tail = FileTail(self._loop, self._on_stdout, self._drain_after_exit)
        try:
            process = self._spawn(tail.writer_fd if tail else subprocess.PIPE)
        except (OSError, ValueError):
            if tail:
                tail.close()
            raise
        finally:
            if tail:
                os.close(tail.writer_fd)
        self._limit_tag.apply(process.pid)
        self._process = process
        self.pid = process.pid
        self._process_tree.root_pid = process.pid
        self._start_time = start_time_of(process.pid) or self._start_time

        if tail:
            self._tail = tail
            self._outputs.append(tail)
        for file, on_data in (
            (process.stdout, self._on_stdout),
            (process.stderr, self._on_stderr),
        ):
            if file:
                self._outputs.append(PipeReader(self._loop, file, on_data, self._drain_after_exit))
        if process.stdin:
            self._stdin_writer = StdinWriter(
                self._loop, process.stdin, self.command.stdin or b"", self.command.keep_stdin_open
            )

        # Watch the process itself: stdout may end much earlier or later.
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not available, or forbidden
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll_exit)
        else:
            self._loop.watch(self._pidfd, self._on_exit)

    def _spawn(self, stdout: int) -> subprocess.Popen[bytes]:
        command = self.command
        env = dict(os.environ if command.env is None else command.env)
        env[RUN_TAG_VARIABLE] = self.run_tag.encode(os.environ.get(RUN_TAG_VARIABLE, ""))
        return subprocess.Popen(  # noqa: S603  # no shell; argv comes from the agent's definition
            command.argv,
            bufsize=0,
            cwd=command.cwd,
            env=env,
            stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # our Ctrl-C doesn't reach it; the group can be signalled
        )

    def _report_start_failure(self, error: Exception) -> None:
        """Report as a shell would, with stderr text and exit code, at the next step of the loop."""
        is_os_error = isinstance(error, OSError)
        cwd = self.command.cwd
        is_cwd_error = is_os_error and cwd is not None and getattr(error, "filename", None) == cwd
        if isinstance(error, FileNotFoundError) and not is_cwd_error:
            self.exit_code = EXIT_NOT_FOUND
        else:
            self.exit_code = EXIT_NOT_EXECUTABLE
        what = f"cannot start in {cwd}" if is_cwd_error else f"cannot start {self.command.argv[0]}"
        errno = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(errno) if errno else str(error)
        message = f"steno: {what}: {reason}\n".encode("utf-8", "replace")
        self._loop.call_soon(lambda: self._on_stderr(message))
        self._loop.call_soon(self._finish)

    # -- records ---------------------------------------------------------------------------------

    @property
    def silent_since(self) -> float:
        """Time of the last output, moved by the time for which steno was suspended since."""
        return self.last_output_at + self._loop.suspended_seconds - self._suspended_before

    def _on_stdout(self, data: bytes) -> None:
        self.last_output_at = self._loop.clock()
        self._suspended_before = self._loop.suspended_seconds
        self.has_stdout = True
        self._on_record(Record(self.last_output_at - self.started, "out", data))

    def _on_stderr(self, data: bytes) -> None:
        self.last_output_at = self._loop.clock()
        self._suspended_before = self._loop.suspended_seconds
        self._on_record(Record(self.last_output_at - self.started, "err", data))

    def discard_records(self) -> None:
        """Drop further records: their receiver has failed."""
        self._on_record = lambda record: None

    # -- stdin -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """Write to stdin if it was kept open; False if it is closed."""
        return self._stdin_writer is not None and self._stdin_writer.write(data)

    def close_stdin(self) -> None:
        """Close stdin once the queued data is written."""
        if self._stdin_writer is not None:
            self._stdin_writer.close_when_written()

    # -- stop ------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Interrupt, then terminate, then kill the whole tree. A second call does nothing.

        Each signal is a record; the first is sent before this returns.
        """
        grace = self.grace
        self._start_escalation(
            reason,
            (signal.SIGINT, grace.interrupt),
            (signal.SIGTERM, grace.terminate),
            (signal.SIGKILL, grace.kill),
        )

    def kill(self, reason: str) -> None:
        """Kill the whole tree at once, including processes that outlived the agent."""
        self._is_killing = True
        if self._escalation is not None:
            self._escalation.skip_to_last_step()
        elif self.exit_code is None:
            self._start_escalation(reason, (signal.SIGKILL, self.grace.kill))
        elif self.pid is not None:
            self._drain_after_exit()

    def _start_escalation(self, reason: str, *steps: tuple[int, float]) -> None:
        if self._escalation is None and self.exit_code is None:
            self._stop_reason = reason
            self._escalation = Escalation(
                loop=self._loop,
                steps=steps,
                send=self._send_signal,
                is_any_left=lambda: self.exit_code is None,
                on_done=self._give_up,
            )
            self._escalation.start()

    def _send_signal(self, number: int, is_first: bool) -> None:
        """SIGINT goes to the process group, as from a terminal: some agents run in a wrapper."""
        now = self._loop.clock()
        if number == signal.SIGINT and self.pid is not None:
            self._process_tree.find_alive()  # remember children that lose their parent by it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        else:
            self._process_tree.send_signal(number)
        if is_first:
            reason = self._stop_reason.encode("utf-8", "replace")
            self._on_record(Record(now - self.started, "stop", reason, number))

    def _give_up(self) -> None:
        """SIGKILL had no effect (an uninterruptible wait): treat the run as finished."""
        if self.exit_code is None:
            self.exit_code = -signal.SIGKILL
            self._exited_at = self._loop.clock()
            self._process_tree.list_survivors()
            self._finish()

    # -- exit ------------------------------------------------------------------------------------

    def _poll_exit(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll_exit)
        else:
            self._on_exit()

    def _on_exit(self) -> None:
        if self._process is None or self.exit_code is not None:
            return
        self._process_tree.find_alive()  # before wait(): afterwards pid and session may be reused
        self.exit_code = self._process.wait()
        self._process_tree.root_pid = None
        self._exited_at = self._loop.clock()
        self._drain_started_at = self._exited_at
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        self._release_descriptors()
        self._drain_after_exit()

    def _drain_after_exit(self) -> None:
        """Wait briefly for the last output and for remaining processes, then terminate those."""
        if self.exit_code is None or self.is_finished or self._escalation is not None:
            return
        self._timer.cancel()
        has_orphans = not self._has_cleared_orphans and bool(self._process_tree.find_alive())
        if not has_orphans and self._tail is not None:
            self._tail.finish()
        if self._should_keep_waiting(has_orphans):
            self._timer = self._loop.call_later(ORPHAN_POLL_SECONDS, self._drain_after_exit)
            return
        if not has_orphans and not self._has_searched_holders:
            # An unknown process may keep a stream open: a daemon with a cleared environment.
            self._has_searched_holders = True
            file_ids = {output.open_file_id for output in self._outputs} - {""}
            has_orphans = bool(file_ids) and self._process_tree.adopt_writers(
                file_ids, self._start_time
            )
        if has_orphans:
            self._terminate_orphans()
        else:
            self._finish()

    def _should_keep_waiting(self, has_orphans: bool) -> bool:
        open_outputs = [output for output in self._outputs if output.is_open]
        if any(output.is_finishing for output in open_outputs):
            return True
        now = self._loop.clock()
        is_quiet = (
            now - max(self.last_output_at, self._drain_started_at) >= self.grace.quiet
            or now - self._drain_started_at >= self.grace.drain
        )
        if has_orphans:
            return not (is_quiet or self._is_killing)
        return bool(open_outputs) and not is_quiet

    def _terminate_orphans(self) -> None:
        """Terminate processes that outlived the agent, or only list them (`keep_orphans`)."""
        self._has_cleared_orphans = True
        if self.run_tag.keep_orphans:
            self._process_tree.list_survivors()
            self._drain_after_exit()
            return
        steps = [(signal.SIGTERM, self.grace.terminate), (signal.SIGKILL, self.grace.kill)]
        self._escalation = Escalation(
            loop=self._loop,
            steps=steps[1:] if self._is_killing else steps,
            send=lambda number, _: self._process_tree.send_signal(number),
            is_any_left=lambda: bool(self._process_tree.find_alive()),
            on_done=self._on_orphans_gone,
        ).start()

    def _on_orphans_gone(self) -> None:
        self._escalation = None
        self._drain_started_at = self._loop.clock()  # their last output gets the same time
        self._drain_after_exit()

    def _release_descriptors(self) -> None:
        if self._pidfd >= 0:
            self._loop.unwatch(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._stdin_writer is not None:
            self._stdin_writer.close()

    def _finish(self) -> None:
        """Close everything; the exit is the last record."""
        self.is_finished = True
        self._timer.cancel()
        self._release_descriptors()
        self._limit_tag.release()
        for output in self._outputs:
            output.close()
        self._on_finished()
        at = max(self._exited_at, self.last_output_at)
        self._on_record(Record(at - self.started, "exit", number=self.exit_code))


DEFAULT_TIMEOUT_SECONDS = 60.0  # git in a large repository is slow
EXIT_TIMEOUT = 124  # as in timeout(1)
MAX_KILL_ROUNDS = 20
KILL_ROUND_SECONDS = 0.01


class RunOnce:
    """A command. All that it started is killed with it.

    With a `guard`, it also ends if steno is killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        extra_env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        unset_env: Collection[str] = (),
        stdin: bytes = b"",
        guard: CommandGuard | None = None,
    ) -> None:
        self._argv = list(argv)
        self._stdin = stdin
        self._cwd = cwd
        self._timeout = timeout
        inherited = {name: value for name, value in os.environ.items() if name not in unset_env}
        self._guard = guard
        self._env = inherited | dict(extra_env or {}) | (guard.env if guard is not None else {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reap_lock = RLock()  # until it is reaped, its pid and session belong to it
        self._is_killed = False

    def run(self) -> tuple[int, bytes, str]:
        """Exit code, stdout and stderr. 127: cannot be started; 124: timed out.

        Output goes to files: a pipe stays open as long as any background process of the command.
        """
        try:
            with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
                stdin.write(self._stdin)
                stdin.seek(0)
                return self._run(stdin, out, err)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            return EXIT_NOT_FOUND, b"", f"{self._argv[0]}: {reason}"

    def _run(self, stdin: IO[bytes], out: IO[bytes], err: IO[bytes]) -> tuple[int, bytes, str]:
        process = subprocess.Popen(  # noqa: S603  # no shell; the caller's argv as it is
            self._argv,
            cwd=self._cwd,
            env=self._env,
            stdin=stdin,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        if self._guard is not None:
            self._guard.add(process.pid)
        self._process = process
        if self._is_killed:  # during the start
            self.kill()
        try:
            self._wait_for_exit(process)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
            return EXIT_TIMEOUT, b"", f"{self._argv[0]} timed out after {self._timeout:g} s"
        return process.returncode, _read_all(out), _read_all(err).decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill the command and all that it started, as long as it runs."""
        self._is_killed = True
        with self._reap_lock:
            if self._process is None or self._process.returncode is not None:
                return
            tree = ProcessTree(list_processes, lambda process: False)
            tree.root_pid = self._process.pid
            for _ in range(MAX_KILL_ROUNDS):  # also reaches what was forked meanwhile
                if not tree.find_alive():
                    break
                tree.send_signal(SIGKILL)
                time.sleep(KILL_ROUND_SECONDS)

    def _wait_for_exit(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait or raise TimeoutExpired. By pidfd if available, without polling."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._poll_for_exit(process)
            return
        try:
            ready = poll()
            ready.register(descriptor)
            ready.poll(self._timeout * 1000)
        finally:
            os.close(descriptor)
        with self._reap_lock:
            process.wait(0)

    def _poll_for_exit(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            with self._reap_lock:
                if process.poll() is not None:
                    return
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self._argv, self._timeout)
            time.sleep(EXIT_POLL_SECONDS)


def _read_all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
