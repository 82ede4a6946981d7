"""The processes of this machine, and the tree below one: find, identify, signal, kill.

Read from /proc on Linux, by psutil elsewhere.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..executables import own_python_path
from .event_loop import EventLoop, Timer
from .run_tag import (
    LIMIT_MARK,
    RUN_TAG_VARIABLE,
    LimitTag,
    ProcessInfo,
    RunTag,
    decode_limit_tag,
    parse_run_tags,
    pid_namespace,
)

IS_LINUX = sys.platform == "linux"
ENVIRON_READ_RETRIES = 20  # for a process whose environment is not readable yet (during exec)
MAX_COMMAND_CHARS = 200  # command lines are cut to this length
_TAG_PREFIX = f"\0{RUN_TAG_VARIABLE}=".encode()

ListProcesses = Callable[[], list[ProcessInfo]]


class StartPoint(Struct, frozen=True):
    """A point in the order in which processes start.

    Pids are given in rising order until `pid_max`, then again from the start. `forks` is the number
    of processes and threads started since the boot: it shows whether the order can have wrapped.
    """

    pid: int = 0
    forks: int = 0

    def is_before(self, pid: int, forks: int) -> bool:
        """Whether a living process is younger, if that can be said by its pid."""
        if not self.forks or not forks:
            return True
        return pid >= self.pid or self.pid + forks - self.forks >= _pid_max()


def fork_count() -> int:
    """Processes and threads that were started since the boot; 0 where unknown."""
    if not IS_LINUX:
        return 0
    stat = _read_proc("stat")
    return int((stat.partition(b"\nprocesses ")[2].split(None, 1) or [b"0"])[0])


@cache
def _pid_max() -> int:
    return int(_read_proc("sys/kernel/pid_max") or 0)


def list_processes(since: StartPoint | None = None) -> list[ProcessInfo]:
    """All readable processes, without zombies; with `since`, few that started before it.

    On a machine with 5,000 processes, reading them all takes 0.1 to 0.4 s.
    """
    if not IS_LINUX:
        from .psutil_backend import iter_processes

        return list(iter_processes())
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  # fast
    if since is not None:
        forks = fork_count()
        pids = [pid for pid in pids if since.is_before(pid, forks)]
    return [info for pid in pids if (info := _read_process(pid)) is not None]


def _read_process(pid: int) -> ProcessInfo | None:
    fields = _stat_fields(pid)
    if not fields:
        return None
    return ProcessInfo(
        pid=pid,
        parent_pid=int(fields[1]),
        sid=int(fields[3]),
        start_time=int(fields[19]),
        run_tags=_read_run_tags(pid, fields),
    )


def start_time_of(pid: int) -> int | None:
    """The process's start time as in `ProcessInfo.start_time`; None if there is none."""
    if IS_LINUX:
        fields = _stat_fields(pid)
        return int(fields[19]) if fields else None
    from . import psutil_backend

    return psutil_backend.start_time_of(pid)


def own_identity() -> tuple[int, int, str]:
    """Pid, start time and pid namespace of this process, as in a `RunTag`."""
    return os.getpid(), start_time_of(os.getpid()) or 0, pid_namespace()


def command_line_of(pid: int) -> str:
    """The process's command line, truncated; "" if it is gone."""
    if IS_LINUX:
        raw = _read_proc(f"{pid}/cmdline").replace(b"\0", b" ")
        return raw.decode("utf-8", "replace").strip()[:MAX_COMMAND_CHARS]
    from . import psutil_backend

    return psutil_backend.command_line_of(pid)[:MAX_COMMAND_CHARS]


def is_own_process(process: ProcessInfo) -> bool:
    """Whether the process runs as the current user."""
    if IS_LINUX:  # the owner of /proc/PID is root for a process that hides its memory
        uids = _read_proc(f"{process.pid}/status").partition(b"\nUid:")[2].split(None, 1)
        return uids[:1] == [str(os.getuid()).encode()]
    from . import psutil_backend

    return psutil_backend.is_own_process(process.pid)


def send_signal(process: ProcessInfo, number: int) -> bool:
    """Send a signal unless the pid was reused; False if it could not be sent.

    A pidfd is opened before the check, so that a pid reused after it is not hit either.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not available, or gone
        descriptor = -1
    try:
        if start_time_of(process.pid) != process.start_time:
            return False
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(process.pid, number)
    except OSError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True


def open_file_id(descriptor: int) -> str:
    """The system's name of an open file, equal in all processes; "" where unavailable."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def can_write_to(pid: int, file_ids: Collection[str]) -> bool:
    """Whether a process has one of these files open for writing; False if unreadable."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  # called for many processes
    except OSError:
        return False
    return any(_is_writer(f"/proc/{pid}/fd/{name}", file_ids) for name in names)


def _is_writer(path: str, file_ids: Collection[str]) -> bool:
    try:
        link = os.readlink(path)  # noqa: PTH115  # called for every descriptor
        return link in file_ids and bool(os.lstat(path).st_mode & 0o200)
    except OSError:
        return False  # closed in the meantime


def _read_run_tags(pid: int, stat: list[bytes]) -> str:
    """The run tags in the initial environment, else in the resource limits.

    During exec the environment reads as empty, so empty results are retried. The command line is
    empty then too. Kernel threads have neither, nor any memory (field 20).
    """
    environ = _read_proc(f"{pid}/environ")
    retries = 0 if stat[20] == b"0" else ENVIRON_READ_RETRIES
    while not environ and retries:
        retries = retries - 1 if not _read_proc(f"{pid}/cmdline") else 0
        environ = _read_proc(f"{pid}/environ")
        if not environ and retries:
            time.sleep(0.001)
    value = (b"\0" + environ).partition(_TAG_PREFIX)[2]
    if not value and stat[20] != b"0":
        limits = _read_proc(f"{pid}/limits")
        if LIMIT_MARK in limits:
            return decode_limit_tag(limits, _read_proc(f"{pid}/status"))
    return value.partition(b"\0")[0].decode("utf-8", "replace")


def _stat_fields(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat after the name: state, parent, group, session, ... 19: start time.

    Split after the last ")", since the name may contain anything. Empty for zombies.
    """
    stat = _read_proc(f"{pid}/stat")
    fields = stat[stat.rfind(b")") + 2 :].split()
    return fields if len(fields) > 20 and fields[0] not in (b"Z", b"X") else []


def _read_proc(name: str) -> bytes:
    """A file below /proc; empty if it can't be read."""
    try:
        file = os.open(f"/proc/{name}", os.O_RDONLY)
    except OSError:
        return b""  # gone, or another user's
    try:
        data = os.read(file, 65536)
        # Short files arrive whole, longer ones page by page.
        while more := os.read(file, 65536) if len(data) >= 4096 else b"":
            data += more
    except OSError:
        return b""
    finally:
        os.close(file)
    return data


ORPHAN_POLL_SECONDS = 0.1  # between checks for remaining processes


class GracePeriods(Struct, frozen=True):
    """Duration of each step of a stop, in seconds. The sum limits a run's time past its timeout."""

    interrupt: float = 5.0  # from SIGINT to SIGTERM: a graceful exit still prints the result
    terminate: float = 3.0  # from SIGTERM to SIGKILL
    kill: float = 2.0  # from SIGKILL to giving up: an uninterruptible wait cannot be killed
    quiet: float = 0.5  # after the exit: silence that closes a stream kept open by other processes
    drain: float = 5.0  # after the exit: limit for such a stream if it never falls silent


class Orphan(Struct, frozen=True):
    """A process that outlived its agent, or was killed with it. `signal` None: left running."""

    pid: int
    command: str
    signal: int | None = None


class ProcessTree:
    """The processes of a run. `root_pid` is the agent's pid until it is reaped."""

    def __init__(
        self, list_processes: ListProcesses, has_tag: Callable[[ProcessInfo], bool]
    ) -> None:
        self.root_pid: int | None = None
        self.orphans: list[Orphan] = []
        self._list_processes = list_processes
        self._has_tag = has_tag
        self._known_start_times: dict[int, int] = {}
        self._sessions: set[int] = set()  # whose first process was a member

    def find_alive(self) -> list[ProcessInfo]:
        """Living members and their descendants, oldest first; never this process.

        A process found once is recognized later by pid and start time, and those of its session by
        the session: its number stays in use as long as any of them lives.
        """
        others = [process for process in self._list_processes() if process.pid != os.getpid()]
        known = self._known_start_times
        sessions = self._sessions if self.root_pid is None else self._sessions | {self.root_pid}
        children: dict[int, list[ProcessInfo]] = {}
        for process in others:
            children.setdefault(process.parent_pid, []).append(process)
            if process.pid in sessions and known.get(process.pid, 0) not in (0, process.start_time):
                sessions.discard(process.pid)  # the number was reused
        queue = [
            process
            for process in others
            if process.sid in sessions
            or known.get(process.pid) == process.start_time
            or self._has_tag(process)
        ]
        members: dict[int, ProcessInfo] = {}
        while queue:
            process = queue.pop()
            if process.pid not in members:
                members[process.pid] = process
                queue += children.get(process.pid, ())
        self._known_start_times = {pid: process.start_time for pid, process in members.items()}
        self._sessions = {
            process.sid
            for process in members.values()
            if process.sid in sessions or process.sid == process.pid
        }
        return sorted(members.values(), key=lambda process: (process.start_time, process.pid))

    def adopt_writers(self, file_ids: Collection[str], since: int) -> bool:
        """Add untagged processes that have one of these files open for writing; False if none.

        Processes older than the agent are excluded, and those of our own session, which no child of
        the agent can join.
        """
        own_session = os.getsid(0)
        writers = [
            process
            for process in self._list_processes()
            if process.start_time >= since
            and process.sid != own_session
            and can_write_to(process.pid, file_ids)
        ]
        self._known_start_times |= {process.pid: process.start_time for process in writers}
        return bool(writers)

    def send_signal(self, number: int) -> None:
        """Signal all members, and list those besides the agent as orphans when it has exited."""
        for process in self.find_alive():
            is_killed_child = number == signal.SIGKILL and process.pid != self.root_pid
            if self.root_pid is None or is_killed_child:
                self._add_orphan(process, number)
            send_signal(process, number)

    def list_survivors(self) -> None:
        """List living members as orphans, without a signal."""
        for process in self.find_alive():
            self._add_orphan(process, None)

    def _add_orphan(self, process: ProcessInfo, number: int | None) -> None:
        if all(orphan.pid != process.pid for orphan in self.orphans):
            command = command_line_of(process.pid)
            self.orphans.append(Orphan(process.pid, command, number and int(number)))


class Escalation:
    """Signals of rising strength, each after a grace period, until no process is left.

    `on_done` is also called if the last signal had no effect.
    """

    def __init__(
        self,
        loop: EventLoop,
        steps: Sequence[tuple[int, float]],
        send: Callable[[int, bool], None],  # True: this signal is sent for the first time
        is_any_left: Callable[[], bool],
        on_done: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._send_signal = send
        self._is_any_left = is_any_left
        self._on_done = on_done
        self._steps = list(steps)
        self._timer = Timer(0.0, None)

    def start(self) -> "Escalation":
        """Take the first step at once."""
        self._next_step()
        return self

    def _next_step(self) -> None:
        self._signal, grace = self._steps.pop(0)
        self._step_deadline = self._loop.clock() + grace
        self._schedule_check()
        self._send_signal(self._signal, True)

    def _schedule_check(self) -> None:
        next_poll = self._loop.clock() + ORPHAN_POLL_SECONDS
        self._timer = self._loop.call_at(min(next_poll, self._step_deadline), self._check)

    def _check(self) -> None:
        is_step_over = self._loop.clock() >= self._step_deadline
        if not self._is_any_left() or (is_step_over and not self._steps):
            self._on_done()
        elif is_step_over:
            self._next_step()
        else:
            self._schedule_check()
            if self._signal == signal.SIGKILL:
                # Also reaches processes forked between listing and signal.
                self._send_signal(self._signal, False)

    def skip_to_last_step(self) -> None:
        """Take the last step at once."""
        if self._steps:
            self._timer.cancel()
            del self._steps[:-1]
            self._next_step()

    def cancel(self) -> None:
        """Stop without `on_done`."""
        self._timer.cancel()


# A shell blocked in `read` costs 1 MB, a Python process 10 MB. A line on stdin means a normal exit;
# end of file without one, that steno was killed. Terminal and service signals are ignored.
WATCHDOG_SCRIPT = 'trap "" HUP INT TERM; read -r word && exit 0; exec "$@"'
CLEANUP_PROGRAM = "from steno.process.process_tree import main; main()"
_DEFAULT_GRACE = GracePeriods()


class Watchdog:
    """Kills the runs of this steno if it is killed. Without /bin/sh there is none."""

    def __init__(self, tag: RunTag) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != RUN_TAG_VARIABLE}
        # Without -E: PYTHONPATH is our own.
        cleanup = [sys.executable, "-P", "-c", CLEANUP_PROGRAM, tag.owner()]
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603  # a fixed script and our interpreter
                ["/bin/sh", "-c", WATCHDOG_SCRIPT, "steno-guard", *cleanup],
                env={**inherited, "PYTHONPATH": own_python_path()},
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Normal exit: end the watchdog without a cleanup."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def main() -> None:
    """The watchdog's cleanup: terminate all runs of a killed steno, also with keep_orphans."""
    terminate_owned(sys.argv[1])


def terminate_owned(owner: str, grace: GracePeriods = _DEFAULT_GRACE) -> list[Orphan]:
    """Terminate everything that a killed steno (`RunTag.owner`) has started, and return it."""
    return _terminate_and_wait(
        lambda process: any(tag.owner() == owner for tag in parse_run_tags(process.run_tags)),
        grace,
    )


def own_name() -> str:
    """This process in the form of `RunTag.owner`."""
    return RunTag("", *own_identity()).owner()


def is_owner_gone(owner: str) -> bool:
    """Whether a steno (`RunTag.owner`) is gone; False if unknown."""
    return any(map(_is_gone, parse_run_tags(f":{owner}")))


class CommandGuard:
    """Tags the commands that steno runs for its user, so that none outlives a killed steno.

    A watchdog terminates them then. What commands leave running is their own matter otherwise.
    """

    def __init__(self, name: str) -> None:
        tag = RunTag(f"{name}-{secrets.token_hex(4)}", *own_identity(), keep_orphans=True)
        self._tag = tag.encode()
        self._limit_tag = LimitTag(tag)
        self.env = {RUN_TAG_VARIABLE: tag.encode(os.environ.get(RUN_TAG_VARIABLE, ""))}
        self._watchdog = Watchdog(tag)

    def add(self, pid: int) -> None:
        """A command was just started, with `env` in its environment."""
        self._limit_tag.apply(pid)

    def terminate(self, grace: GracePeriods) -> None:
        """Terminate all commands and what they have started, and wait for that."""
        _terminate_and_wait(
            lambda process: (
                self._tag in process.run_tags or self._limit_tag.matches(process.run_tags)
            ),
            grace,
        )

    def close(self) -> None:
        """No more commands will be started. A second call does nothing."""
        self._watchdog.stop()
        self._limit_tag.release()


def terminate_orphans(
    run_id: str | None = None, grace: GracePeriods = _DEFAULT_GRACE
) -> list[Orphan]:
    """Terminate processes of runs whose steno is gone (or of one such run), and return them.

    Waits for their exit. Called when steno starts.
    """
    processes = list_processes()
    ancestors = ancestor_pids(processes)

    def is_lost(process: ProcessInfo) -> bool:
        if not process.run_tags or process.pid in ancestors or not is_own_process(process):
            return False
        tags = parse_run_tags(process.run_tags)
        return any(_is_orphaned(tag) for tag in tags if run_id in (None, "", tag.run_id))

    return _terminate_and_wait(is_lost, grace) if any(map(is_lost, processes)) else []


def _is_orphaned(tag: RunTag) -> bool:
    return not tag.keep_orphans and _is_gone(tag)


def _is_gone(tag: RunTag) -> bool:
    """Whether its steno is gone. Unknown for other containers, so False."""
    return (
        tag.pid_namespace == pid_namespace()
        and start_time_of(tag.steno_pid) != tag.steno_start_time
    )


def ancestor_pids(processes: list[ProcessInfo]) -> set[int]:
    """This process and its ancestors: a steno started by an orphan must not kill itself."""
    parents = {process.pid: process.parent_pid for process in processes}
    ancestors: set[int] = set()
    pid = os.getpid()
    while pid and pid not in ancestors:
        ancestors.add(pid)
        pid = parents.get(pid, 0)
    return ancestors


def _terminate_and_wait(
    is_lost: Callable[[ProcessInfo], bool], grace: GracePeriods
) -> list[Orphan]:
    loop = EventLoop()
    tree = ProcessTree(list_processes, is_lost)
    pending = [True]
    Escalation(
        loop=loop,
        steps=((signal.SIGTERM, grace.terminate), (signal.SIGKILL, grace.kill)),
        send=lambda number, _: tree.send_signal(number),
        is_any_left=lambda: bool(tree.find_alive()),
        on_done=pending.clear,
    ).start()
    while pending:
        loop.step()
    loop.close()
    return tree.orphans
