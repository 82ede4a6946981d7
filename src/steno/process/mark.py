"""The mark that every process of a run carries in its environment, so that it is found wherever it went.

A process that forks twice into a session of its own has no parent and no group left that would name us; its
environment still does. The mark also says which steno started the run, so that another can tell whether that one
is gone. Values only: nothing here looks at a process but our own.
"""

from pathlib import Path

from msgspec import Struct

NAME = "STENO_RUN"


class Mark(Struct, frozen=True):
    """One run, and the steno that started it: `born` is when, in the system's own unit; `space` its space of pids."""

    run: str
    pid: int
    born: int
    space: str
    keep: bool = False  # what outlives the agent is meant to: the next steno leaves it alone

    def text(self) -> str:
        """As it stands in the environment."""
        return f"{self.run}:{self.steno()}{':keep' if self.keep else ''}"

    def steno(self) -> str:
        """The part that names the steno."""
        return f"{self.pid}:{self.born}:{self.space}"


def space() -> str:
    """The space that our pids are counted in: a container has its own, and its pids mean nothing outside."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")
    except OSError:
        return "0"


def chained(mark: Mark, outer: str) -> str:
    """The marks of a run that a run started: the inner one's processes belong to both."""
    return f"{outer},{mark.text()}" if outer else mark.text()


def marks(text: str) -> list[Mark]:
    """Every mark in the environment of a process; what cannot be read is none."""
    found = []
    for part in text.split(","):
        match part.split(":"):
            case [run, pid, born, where, *keep] if pid.isdecimal() and born.isdecimal() and keep in ([], ["keep"]):
                found.append(Mark(run, int(pid), int(born), where, bool(keep)))
    return found
