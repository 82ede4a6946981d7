"""Records about processes: the run tag in their environment, and one row of the process table.

A daemon that forks twice into a session of its own loses its parent and its group, but keeps its
environment. The run tag in it names the run, and the steno that started the run.
"""

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
