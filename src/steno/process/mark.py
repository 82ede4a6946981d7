"""The mark that every process of a run carries in its environment, so that it is found wherever it went.

A process that forks twice into a session of its own has no parent and no group left that would name us; its
environment still does. The mark also says which steno started the run, so that another can tell whether that one
is gone. Values only: nothing here looks at a process but our own.
"""

from pathlib import Path

from msgspec import Struct

RUN_TAG_VARIABLE = "STENO_RUN"


class RunTag(Struct, frozen=True):
    """One run, and the steno that started it: `born` is when, in the system's own unit; `space` its space of pids."""

    run_id: str
    steno_pid: int
    steno_start_time: int
    pid_namespace: str
    keep_orphans: bool = False  # what outlives the agent is meant to: the next steno leaves it alone

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
            case [run, pid, born, where, *keep] if pid.isdecimal() and born.isdecimal() and keep in ([], ["keep"]):
                found.append(RunTag(run, int(pid), int(born), where, bool(keep)))
    return found
