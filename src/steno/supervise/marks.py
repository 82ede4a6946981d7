"""The marks of runs that go on: a small file for each, so that others find it, and know whether its steno still lives.

It writes, reads and removes marks. It never touches a process or a tape.
"""

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from platform import node

import msgspec
from msgspec import Struct

from ..process.kin import born
from ..process.mark import space
from .place import LIVE, home, live_folder

ENDING = ".json"
FORGOTTEN = 30 * 86400.0  # seconds after which the mark of a dead run is of no use to anybody


class Live(Struct, kw_only=True):
    """A run that goes on, or went on when its steno died, or whose end is not in the ledger."""

    run: str
    task: str
    agent: str
    host: str  # the machine and the space of pids that the numbers below are of
    steno_pid: int
    steno_born: int
    agent_pid: int | None = None
    socket: str | None = None  # where it can be spoken to
    tape: str | None = None
    ledger: str | None = None  # where its row is, or is going to be; without a password
    session: str | None = None
    cwd: str | None = None
    started: float = 0.0  # seconds since 1970
    waits_until: float | None = None  # between two attempts: when the next one begins
    steer: bool = False  # it takes messages
    prompt: str = ""  # its beginning, without secrets
    over: bool = False  # it has ended, and the ledger could not take it: its tape is to be taken in

    @property
    def alive(self) -> bool:
        """Whether it goes on: its steno lives and has not seen its end."""
        return not self.over and born(self.steno_pid) == self.steno_born


def here() -> str:
    """This machine and its space of pids: of another one nothing can be said."""
    return f"{node()} {space()}"


def write(mark: Live) -> None:
    """Write a mark, or write it anew: whoever reads it sees the old one or the new one. OSError if that cannot be."""
    path = live_folder() / f"{mark.run}{ENDING}"
    draft = path.with_name(f".{mark.run}.{secrets.token_hex(4)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        data = msgspec.json.encode(mark)
        if os.write(file, data) < len(data):  # a disk that is nearly full takes a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def remove(mark: Live) -> None:
    """Take a mark away, and the socket of a run that is over."""
    gone = [_path(mark.run).unlink]
    if mark.socket is not None:
        socket = Path(mark.socket)
        gone += [socket.unlink, *([socket.parent.rmdir] if socket.parent != home() / LIVE else ())]
    for remove_one in gone:
        with suppress(OSError):
            remove_one()


def _path(run: str) -> Path:
    return home() / LIVE / f"{run}{ENDING}"


def living() -> list[Live]:
    """The runs of this machine that go on, the oldest first."""
    return [mark for mark in _all() if mark.alive]


def lost() -> list[Live]:
    """Those whose steno is gone, or could not book them, the oldest first. Marks too old to be of use are taken away."""
    found = [mark for mark in _all() if not mark.alive]
    for mark in found:
        if mark.started < time.time() - FORGOTTEN:
            remove(mark)
    return found


def find(run: str) -> Live | None:
    """The mark of a run that goes on; None if it does not."""
    mark = _read(_path(run))
    return mark if mark is not None and mark.alive else None


def _all() -> list[Live]:
    marks = map(_read, sorted((home() / LIVE).glob(f"*{ENDING}")))
    return [mark for mark in marks if mark is not None]


def _read(path: Path) -> Live | None:
    """A mark of this machine; None if it is gone in the meantime, or none of ours."""
    try:
        mark = msgspec.json.decode(path.read_bytes(), type=Live)
    except (OSError, msgspec.MsgspecError):
        return None
    return mark if mark.host == here() and mark.run == path.name.removesuffix(ENDING) else None
