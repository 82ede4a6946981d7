"""The mark that every process of a run carries in its environment, so that it is found wherever it went.

A process that forks twice into a session of its own has no parent and no group left that would name us; its
environment still does. The mark also says which steno started the run, so that another can tell whether that one
is gone. Values only: nothing here looks at a process but our own.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec import Struct

RUN_TAG_VARIABLE = "STENO_RUN"


class RunTag(Struct, frozen=True):
    """One run, and the steno that started it: `born` is when, in the system's own unit; `space` its space of pids."""

    run_id: str
    steno_pid: int
    steno_start_time: int
    pid_namespace: str
    keep_orphans: bool = (
        False  # what outlives the agent is meant to: the next steno leaves it alone
    )

    def encode(self) -> str:
        """As it stands in the environment."""
        return f"{self.run_id}:{self.owner()}{':keep' if self.keep_orphans else ''}"

    def owner(self) -> str:
        """The part that names the steno."""
        return f"{self.steno_pid}:{self.steno_start_time}:{self.pid_namespace}"


def pid_namespace() -> str:
    """The space that our pids are counted in: a container has its own, and its pids mean nothing outside."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")
    except OSError:
        return "0"


def append_tag(mark: RunTag, outer: str) -> str:
    """The marks of a run that a run started: the inner one's processes belong to both."""
    return f"{outer},{mark.encode()}" if outer else mark.encode()


def parse_run_tags(text: str) -> list[RunTag]:
    """Every mark in the environment of a process; what cannot be read is none."""
    found = []
    for part in text.split(","):
        match part.split(":"):
            case [run, pid, born, where, *keep] if (
                pid.isdecimal() and born.isdecimal() and keep in ([], ["keep"])
            ):
                found.append(RunTag(run, int(pid), int(born), where, bool(keep)))
    return found


IS_LINUX = sys.platform == "linux"
ENVIRON_READ_RETRIES = 20  # times that a process is asked which shows nothing of itself
MAX_COMMAND_CHARS = 200  # characters of a command line that are kept of a process
_TAG_PREFIX = f"\0{RUN_TAG_VARIABLE}=".encode()


class ProcessInfo(Struct, frozen=True, gc=False):
    """One process. `born` is in the system's own unit, and only good for comparing."""

    pid: int
    parent_pid: int
    sid: int
    start_time: int
    run_tags: str


ListProcesses = Callable[[], list[ProcessInfo]]


def list_processes() -> list[ProcessInfo]:
    """Every living process that can be looked at. One that is gone, but not yet waited for, does not live."""
    if IS_LINUX:
        return list(_iter_processes())
    from .psutil_backend import iter_processes

    return list(iter_processes())


def start_time_of(pid: int) -> int | None:
    """When a process was born, in the unit of `Kin.born`; None if it is not there."""
    if IS_LINUX:
        fields = _stat_fields(pid)
        return int(fields[19]) if fields else None
    from . import psutil_backend as elsewhere

    return elsewhere.start_time_of(pid)


def command_line_of(pid: int) -> str:
    """The command line of a process, shortened; "" if it is gone."""
    if IS_LINUX:
        return (
            _read_proc_file(pid, "cmdline")
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
            .strip()[:MAX_COMMAND_CHARS]
        )
    from . import psutil_backend as elsewhere

    return elsewhere.command_line_of(pid)[:MAX_COMMAND_CHARS]


def is_own_process(kin: ProcessInfo) -> bool:
    """Whether the process runs as the same user as we do."""
    if IS_LINUX:
        try:
            return Path(f"/proc/{kin.pid}").stat().st_uid == os.getuid()
        except OSError:
            return False
    from . import psutil_backend as elsewhere

    return elsewhere.is_own_process(kin.pid)


def send_signal(kin: ProcessInfo, number: int) -> bool:
    """Send a signal to that process and no other; False if it is gone or not ours to signal."""
    if start_time_of(kin.pid) != kin.start_time:
        return False
    try:
        os.kill(kin.pid, number)
    except OSError:
        return False
    return True


def open_file_id(descriptor: int) -> str:
    """What the system calls an open file of ours, the same for everybody who has it open; "" where it does not say."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def can_write_to(pid: int, links: Collection[str]) -> bool:
    """Whether a process can write to one of these open files. Of a process that is not ours to look at nothing is known."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return False
    return any(_is_writer(f"/proc/{pid}/fd/{name}", links) for name in names)


def _is_writer(path: str, links: Collection[str]) -> bool:
    try:
        return os.readlink(path) in links and bool(os.lstat(path).st_mode & 0o200)  # noqa: PTH115
    except OSError:
        return False  # closed in the meantime


def _iter_processes() -> Iterator[ProcessInfo]:
    for name in os.listdir("/proc"):  # noqa: PTH208  # a Path for each process would double the cost
        if name.isdecimal():
            pid = int(name)
            fields = _stat_fields(pid)
            if fields:
                yield ProcessInfo(
                    pid,
                    int(fields[1]),
                    int(fields[3]),
                    int(fields[19]),
                    _run_tags_in(_read_environ(pid, fields)),
                )


def _read_environ(pid: int, stat: list[bytes]) -> bytes:
    """What a process was started with. One that is just becoming another program shows nothing: it is asked again.

    It shows no command line then either. A thread of the system never has one, nor any memory (field 20).
    """
    found = _read_proc_file(pid, "environ")
    looks = 0 if stat[20] == b"0" else ENVIRON_READ_RETRIES
    while not found and looks:
        looks = looks - 1 if not _read_proc_file(pid, "cmdline") else 0
        found = _read_proc_file(pid, "environ")
        if not found and looks:
            time.sleep(0.001)
    return found


def _stat_fields(pid: int) -> list[bytes]:
    """The fields after the name, which may hold anything: state, parent, group, session, ... the birth is number 19."""
    stat = _read_proc_file(pid, "stat")
    fields = stat[stat.rfind(b")") + 2 :].split()
    return fields if len(fields) > 20 and fields[0] not in (b"Z", b"X") else []


def _read_proc_file(pid: int, name: str) -> bytes:
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""  # gone, or somebody else's
    try:
        data = os.read(file, 65536)
        while (
            more := os.read(file, 65536) if len(data) >= 4096 else b""
        ):  # short files come whole, pages one by one
            data += more
    except OSError:
        return b""
    finally:
        os.close(file)
    return data


def _run_tags_in(environ: bytes) -> str:
    found = (b"\0" + environ).partition(_TAG_PREFIX)[2]
    return found.partition(b"\0")[0].decode("utf-8", "replace")
