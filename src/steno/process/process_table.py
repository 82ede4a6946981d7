"""The processes of this machine: list them, identify them, signal one of them.

Read from /proc on Linux, by psutil elsewhere.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from .process_info import RUN_TAG_VARIABLE, ProcessInfo

IS_LINUX = sys.platform == "linux"
ENVIRON_READ_RETRIES = 20  # for a process whose environment is not readable yet (during exec)
MAX_COMMAND_CHARS = 200  # command lines are cut to this length
_TAG_PREFIX = f"\0{RUN_TAG_VARIABLE}=".encode()

ListProcesses = Callable[[], list[ProcessInfo]]


def list_processes() -> list[ProcessInfo]:
    """All readable processes, without zombies."""
    if IS_LINUX:
        return list(_iter_processes())
    from .psutil_backend import iter_processes

    return list(iter_processes())


def start_time_of(pid: int) -> int | None:
    """The process's start time as in `ProcessInfo.start_time`; None if there is none."""
    if IS_LINUX:
        fields = _stat_fields(pid)
        return int(fields[19]) if fields else None
    from . import psutil_backend

    return psutil_backend.start_time_of(pid)


def command_line_of(pid: int) -> str:
    """The process's command line, truncated; "" if it is gone."""
    if IS_LINUX:
        raw = _read_proc_file(pid, "cmdline").replace(b"\0", b" ")
        return raw.decode("utf-8", "replace").strip()[:MAX_COMMAND_CHARS]
    from . import psutil_backend

    return psutil_backend.command_line_of(pid)[:MAX_COMMAND_CHARS]


def is_own_process(process: ProcessInfo) -> bool:
    """Whether the process runs as the current user."""
    if IS_LINUX:
        try:
            return Path(f"/proc/{process.pid}").stat().st_uid == os.getuid()
        except OSError:
            return False
    from . import psutil_backend

    return psutil_backend.is_own_process(process.pid)


def send_signal(process: ProcessInfo, number: int) -> bool:
    """Send a signal unless the pid was reused; False if it could not be sent."""
    if start_time_of(process.pid) != process.start_time:
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
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


def _iter_processes() -> Iterator[ProcessInfo]:
    for name in os.listdir("/proc"):  # noqa: PTH208  # a Path per process doubles the cost
        if not name.isdecimal():
            continue
        pid = int(name)
        fields = _stat_fields(pid)
        if fields:
            yield ProcessInfo(
                pid=pid,
                parent_pid=int(fields[1]),
                sid=int(fields[3]),
                start_time=int(fields[19]),
                run_tags=_run_tags_in(_read_environ(pid, fields)),
            )


def _read_environ(pid: int, stat: list[bytes]) -> bytes:
    """The initial environment. During exec it reads as empty, so empty results are retried.

    The command line is empty then too. Kernel threads have neither, nor any memory (field 20).
    """
    environ = _read_proc_file(pid, "environ")
    retries = 0 if stat[20] == b"0" else ENVIRON_READ_RETRIES
    while not environ and retries:
        retries = retries - 1 if not _read_proc_file(pid, "cmdline") else 0
        environ = _read_proc_file(pid, "environ")
        if not environ and retries:
            time.sleep(0.001)
    return environ


def _stat_fields(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat after the name: state, parent, group, session, ... 19: start time.

    Split after the last ")", since the name may contain anything. Empty for zombies.
    """
    stat = _read_proc_file(pid, "stat")
    fields = stat[stat.rfind(b")") + 2 :].split()
    return fields if len(fields) > 20 and fields[0] not in (b"Z", b"X") else []


def _read_proc_file(pid: int, name: str) -> bytes:
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
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


def _run_tags_in(environ: bytes) -> str:
    value = (b"\0" + environ).partition(_TAG_PREFIX)[2]
    return value.partition(b"\0")[0].decode("utf-8", "replace")
