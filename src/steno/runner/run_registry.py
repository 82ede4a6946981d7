"""The registry of active runs: one small JSON file per run in the data folder.

Other processes find a run by it, and see whether its steno is still alive.
"""

import errno
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from platform import node

import msgspec
from msgspec import Struct

from ..config.files import LIVE_FOLDER_NAME, data_folder, live_folder
from ..process.process_info import pid_namespace
from ..process.process_tree import start_time_of

RUN_INFO_SUFFIX = ".json"
LOST_RUN_RETENTION_SECONDS = 30 * 86400.0  # entries of lost runs are deleted after that


class RunInfo(Struct, kw_only=True):
    """A registry entry: an active run, a lost one, or one that is missing in the ledger.

    The field names are the keys of the file.
    """

    run: str
    task: str
    agent: str
    host: str  # machine and pid namespace
    steno_pid: int
    steno_born: int
    agent_pid: int | None = None
    socket: str | None = None  # path of the control socket
    tape: str | None = None
    ledger: str | None = None  # location of the ledger, without a password
    session: str | None = None
    cwd: str | None = None
    started: float = 0.0  # seconds since 1970
    waits_until: float | None = None  # start of the next attempt, during a wait
    steer: bool = False  # accepts messages
    prompt: str = ""  # truncated, secrets removed
    over: bool = False  # finished, but not in the ledger yet: the recording must be imported

    @property
    def is_alive(self) -> bool:
        """Whether the run is active: its steno is alive and has not seen its end."""
        return not self.over and start_time_of(self.steno_pid) == self.steno_born


def host_id() -> str:
    """This machine and its pid namespace: pids of another one can't be checked."""
    return f"{node()} {pid_namespace()}"


def write_run_info(info: RunInfo) -> None:
    """Create or replace an entry atomically. OSError if it can't be written."""
    path = live_folder() / f"{info.run}{RUN_INFO_SUFFIX}"
    draft = path.with_name(f".{info.run}.{secrets.token_hex(4)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        data = msgspec.json.encode(info)
        if os.write(file, data) < len(data):  # partial write: the disk is nearly full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def remove_run_info(info: RunInfo) -> None:
    """Delete an entry and its socket, if they exist."""
    removals: list[Callable[[], None]] = [_run_info_path(info.run).unlink]
    if info.socket is not None:
        socket = Path(info.socket)
        removals.append(socket.unlink)
        if socket.parent != data_folder() / LIVE_FOLDER_NAME:
            removals.append(socket.parent.rmdir)
    for remove in removals:
        with suppress(OSError):
            remove()


def _run_info_path(run: str) -> Path:
    return data_folder() / LIVE_FOLDER_NAME / f"{run}{RUN_INFO_SUFFIX}"


def active_runs() -> list[RunInfo]:
    """Active runs of this machine, oldest first."""
    return [info for info in _read_all() if info.is_alive]


def lost_runs() -> list[RunInfo]:
    """Runs whose steno is gone or could not write to the ledger, oldest first.

    Expired entries are deleted.
    """
    lost = [info for info in _read_all() if not info.is_alive]
    for info in lost:
        if info.started < time.time() - LOST_RUN_RETENTION_SECONDS:
            remove_run_info(info)
    return lost


def get_active_run(run: str) -> RunInfo | None:
    """The entry of an active run; None if it isn't active."""
    info = _read_run_info(_run_info_path(run))
    return info if info is not None and info.is_alive else None


def _read_all() -> list[RunInfo]:
    paths = sorted((data_folder() / LIVE_FOLDER_NAME).glob(f"*{RUN_INFO_SUFFIX}"))
    return [info for path in paths if (info := _read_run_info(path)) is not None]


def _read_run_info(path: Path) -> RunInfo | None:
    """An entry of this machine; None if it was deleted, is invalid or of another machine."""
    try:
        info = msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except (OSError, msgspec.MsgspecError):
        return None
    is_own = info.host == host_id() and info.run == path.name.removesuffix(RUN_INFO_SUFFIX)
    return info if is_own else None
