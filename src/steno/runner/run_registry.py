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

from ..config.data_dir import LIVE_FOLDER_NAME, data_folder, live_folder
from ..process.process_table import pid_namespace, start_time_of

RUN_INFO_SUFFIX = ".json"
LOST_RUN_RETENTION_SECONDS = (
    30 * 86400.0
)  # seconds after which the mark of a dead run is of no use to anybody


class RunInfo(Struct, kw_only=True):
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
    def is_alive(self) -> bool:
        """Whether it goes on: its steno lives and has not seen its end."""
        return not self.over and start_time_of(self.steno_pid) == self.steno_born


def host_id() -> str:
    """This machine and its space of pids: of another one nothing can be said."""
    return f"{node()} {pid_namespace()}"


def write_run_info(mark: RunInfo) -> None:
    """Write a mark, or write it anew: whoever reads it sees the old one or the new one. OSError if that cannot be."""
    path = live_folder() / f"{mark.run}{RUN_INFO_SUFFIX}"
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


def remove_run_info(mark: RunInfo) -> None:
    """Take a mark away, and the socket of a run that is over."""
    gone = [_run_info_path(mark.run).unlink]
    if mark.socket is not None:
        socket = Path(mark.socket)
        gone += [
            socket.unlink,
            *([socket.parent.rmdir] if socket.parent != data_folder() / LIVE_FOLDER_NAME else ()),
        ]
    for remove_one in gone:
        with suppress(OSError):
            remove_one()


def _run_info_path(run: str) -> Path:
    return data_folder() / LIVE_FOLDER_NAME / f"{run}{RUN_INFO_SUFFIX}"


def active_runs() -> list[RunInfo]:
    """The runs of this machine that go on, the oldest first."""
    return [mark for mark in _read_all() if mark.is_alive]


def lost_runs() -> list[RunInfo]:
    """Those whose steno is gone, or could not book them, the oldest first. Marks too old to be of use are taken away."""
    found = [mark for mark in _read_all() if not mark.is_alive]
    for mark in found:
        if mark.started < time.time() - LOST_RUN_RETENTION_SECONDS:
            remove_run_info(mark)
    return found


def get_active_run(run: str) -> RunInfo | None:
    """The mark of a run that goes on; None if it does not."""
    mark = _read_run_info(_run_info_path(run))
    return mark if mark is not None and mark.is_alive else None


def _read_all() -> list[RunInfo]:
    marks = map(
        _read_run_info, sorted((data_folder() / LIVE_FOLDER_NAME).glob(f"*{RUN_INFO_SUFFIX}"))
    )
    return [mark for mark in marks if mark is not None]


def _read_run_info(path: Path) -> RunInfo | None:
    """A mark of this machine; None if it is gone in the meantime, or none of ours."""
    try:
        mark = msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except (OSError, msgspec.MsgspecError):
        return None
    return (
        mark
        if mark.host == host_id() and mark.run == path.name.removesuffix(RUN_INFO_SUFFIX)
        else None
    )
