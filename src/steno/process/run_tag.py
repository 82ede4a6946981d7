"""Tags by which a process is recognised as part of a run, and one row of the process table.

A daemon that forks twice into a session of its own loses its parent and its group, but keeps its
environment. The run tag in it names the run, and the steno that started the run. Processes that
cleared or hide their environment have a second tag: a resource limit.
"""

import sys
import threading
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

RUN_TAG_VARIABLE = "STENO_RUN"


class RunTag(Struct, frozen=True):
    """One run and the steno that started it. `steno_start_time` is in the system's own unit."""

    run_id: str
    steno_pid: int
    steno_start_time: int
    pid_namespace: str
    keep_orphans: bool = False  # processes that outlive the agent stay; cleanup skips them

    def encode(self, outer: str = "") -> str:
        """The value for the environment. Processes of a nested run belong to the outer run too."""
        own = f"{self.run_id}:{self.owner()}{':keep' if self.keep_orphans else ''}"
        return f"{outer},{own}" if outer else own

    def owner(self) -> str:
        """The part that identifies the steno."""
        return f"{self.steno_pid}:{self.steno_start_time}:{self.pid_namespace}"


class ProcessInfo(Struct, frozen=True, gc=False):
    """One process. `start_time` is in the system's own unit, for comparison only."""

    pid: int
    parent_pid: int
    sid: int
    start_time: int
    run_tags: str


def pid_namespace() -> str:
    """The pid namespace of this process: pids of another container mean nothing here."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")
    except OSError:
        return "0"


def parse_run_tags(text: str) -> list[RunTag]:
    """All tags in an environment value; invalid parts are skipped."""
    tags = []
    for part in text.split(","):
        match part.split(":"):
            case [run, pid, start_time, namespace, *keep] if (
                pid.isdecimal() and start_time.isdecimal() and keep in ([], ["keep"])
            ):
                tags.append(RunTag(run, int(pid), int(start_time), namespace, bool(keep)))
    return tags


# -- the second tag ------------------------------------------------------------------------------
#
# Limits are inherited through `env -i`, setsid and a double fork, and /proc/PID/limits is readable
# where the environment is not (`ssh-agent`). Linux ignores RLIMIT_LOCKS since 2.4.25, so it can
# carry a tag: the hard limit marks it, the soft limit contains the owner and the number of the run.
# It is set right after the start, on the program and what it has started by then. Only a process
# whose parent exits within that first millisecond can miss it.
# Setting takes 10 µs per run, reading 20 µs per process that has no tag in its environment.

RLIMIT_LOCKS = 10
HARD_LIMIT = 0x7F53_5445_4E4F_0000  # contains "STENO" in ASCII; no one sets this by chance
LIMIT_MARK = str(HARD_LIMIT).encode()
# Bits of the soft limit, which must be smaller: start time (in ticks: 2.7 years after the boot),
# pid, number of the run, and whether its orphans are kept.
START_TIME_BITS = 33
PID_BITS = 22
NUMBER_BITS = 6

_lock = threading.Lock()
_used_numbers: set[int] = set()


class LimitTag:
    """The tag of one run, and its number until `release`. There may be none: `text` is empty."""

    def __init__(self, tag: RunTag) -> None:
        self.text = ""
        self._keep = tag.keep_orphans
        self._number = 0
        self._soft_limit = 0
        if sys.platform != "linux" or tag.steno_start_time >> START_TIME_BITS:
            return
        with _lock:
            free = set(range(1, 1 << NUMBER_BITS)) - _used_numbers
            self._number = min(free, default=0)
            _used_numbers.add(self._number)
        if self._number:
            owner = tag.steno_start_time << PID_BITS | tag.steno_pid
            self._soft_limit = (owner << NUMBER_BITS | self._number) << 1 | self._keep
            self.text = f"#{self._number}:{tag.steno_pid}:{tag.steno_start_time}:"

    def apply(self, pid: int) -> None:
        """Tag a process that was just started. Without effect where the system forbids it."""
        if sys.platform == "linux" and self.text:
            import resource

            untagged = [pid]
            while untagged:
                pid = untagged.pop()
                with suppress(OSError, ValueError):
                    resource.prlimit(pid, RLIMIT_LOCKS, (self._soft_limit, HARD_LIMIT))
                    # Those that it starts from now on inherit the tag.
                    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                    untagged += map(int, children.split())

    def matches(self, run_tags: str) -> bool:
        """Whether the tags of a process are this one."""
        return (
            bool(self.text)
            and run_tags.startswith(self.text)
            and run_tags.endswith(":keep") == self._keep
        )

    def release(self) -> None:
        """The run has finished: another one may have its number."""
        with _lock:
            _used_numbers.discard(self._number)
        self.text = ""


def decode_limit_tag(limits: bytes, status: bytes) -> str:
    """The tag in the form of `RunTag.encode`, from /proc/PID/limits and status; "" if none."""
    fields = limits.partition(b"Max file locks")[2].split(None, 2)
    if len(fields) < 3 or fields[1] != LIMIT_MARK or not fields[0].isdigit():
        return ""
    rest, keep = divmod(int(fields[0]), 2)
    owner, number = divmod(rest, 1 << NUMBER_BITS)
    start_time, pid = divmod(owner, 1 << PID_BITS)
    # One pid: the process is in our namespace. In another one the owner's pid means nothing here.
    pids = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    namespace = pid_namespace() if len(pids) == 1 else "?"
    return f"#{number}:{pid}:{start_time}:{namespace}{':keep' if keep else ''}"
