"""The registry of active runs, the socket by which other processes control one, crash recovery.

The registry is one small JSON file per run in the data folder: other processes find a run by it,
and see whether its steno is still alive.
"""

import errno
import os
import secrets
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import Any

import msgspec
from msgspec import Struct

from ..config.files import LIVE_FOLDER_NAME, data_folder, list_recordings, live_folder
from ..errors import StenoError
from ..ledger.queries.runs import find_run
from ..ledger.run_record import finish_lost_task, insert_active_run
from ..ledger.store import Store, ledger_location
from ..private_files import temporary_folder
from ..process import terminate_orphans
from ..process.event_loop import EventLoop
from ..process.process_tree import start_time_of
from ..process.run_tag import pid_namespace
from ..recording.format import mark_superseded

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
    name: str | None = None  # given by the user
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
    folder = data_folder() / LIVE_FOLDER_NAME
    removals: list[Callable[[], None]] = [(folder / f"{info.run}{RUN_INFO_SUFFIX}").unlink]
    if info.socket is not None:
        socket = Path(info.socket)
        removals.append(socket.unlink)
        if socket.parent != folder:
            removals.append(socket.parent.rmdir)
    for remove in removals:
        with suppress(OSError):
            remove()


def active_runs() -> list[RunInfo]:
    """Active runs of this machine, oldest first."""
    return [info for info in _read_all() if info.is_alive]


def finished_recordings() -> list[str]:
    """The recordings of this machine, without those of active runs."""
    active = {info.tape for info in active_runs()}
    return [path for path in list_recordings() if path not in active]


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
    info = _read_run_info(data_folder() / LIVE_FOLDER_NAME / f"{run}{RUN_INFO_SUFFIX}")
    return info if info is not None and info.is_alive else None


def _read_all() -> list[RunInfo]:
    """All entries of this machine, oldest first."""
    paths = (data_folder() / LIVE_FOLDER_NAME).glob(f"*{RUN_INFO_SUFFIX}")
    infos = [info for path in paths if (info := _read_run_info(path)) is not None]
    return sorted(infos, key=lambda info: (info.started, info.run))


def _read_run_info(path: Path) -> RunInfo | None:
    """An entry of this machine; None if it was deleted, is invalid or of another machine."""
    try:
        info = msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except (OSError, msgspec.MsgspecError):
        return None
    is_own = info.host == host_id() and info.run == path.name.removesuffix(RUN_INFO_SUFFIX)
    return info if is_own else None


MAX_SOCKET_PATH_BYTES = 100  # the system's own limit is 104 to 108
MAX_MESSAGE_BYTES = 128 << 10  # a datagram must fit the socket's buffer
REPLY_TIMEOUT_SECONDS = 5.0
MAX_MESSAGES_PER_STEP = 16  # requests handled in one step of the loop

# Linux says who sent a datagram; SO_PEERCRED is for connections. Elsewhere a datagram has no
# sender, and the modes of the socket and its folder (0600 in 0700) keep other users out.
HAS_SENDER_UID = hasattr(socket, "SO_PASSCRED")
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
REFUSAL = {"ok": False, "error": "the run belongs to another user"}

Reply = dict[str, Any]
RequestCallback = Callable[[dict[str, Any]], Reply]


class ControlSocket:
    """The run's end: passes each request to `on_request` and sends its reply."""

    def __init__(self, loop: EventLoop, path: Path, on_request: RequestCallback) -> None:
        self._owns_folder = len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES
        self.path = path
        if self._owns_folder:  # private, random name
            self.path = Path(tempfile.mkdtemp(prefix="steno-", dir=_short_parent())) / "s"
        self._loop = loop
        self._on_request = on_request
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            if HAS_SENDER_UID:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            # Mode 0600 from the start. Not by umask, which all threads share.
            with suppress(OSError):  # Linux creates the file with the socket's own mode
                os.fchmod(self._socket.fileno(), 0o600)
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
            loop.watch(self._socket.fileno(), self._read_requests)
        except BaseException:
            self._socket.close()
            raise

    def _read_requests(self) -> None:
        for _ in range(MAX_MESSAGES_PER_STEP):
            try:
                data, ancillary, _, sender = self._socket.recvmsg(
                    MAX_MESSAGE_BYTES + 1, socket.CMSG_SPACE(CREDENTIALS.size)
                )
            except OSError:
                return  # no more requests
            reply = self._reply_to(data) if _is_from_own_user(ancillary) else dict(REFUSAL)
            if sender:
                with suppress(OSError):  # the sender is gone
                    self._socket.sendto(msgspec.json.encode(reply), sender)

    def _reply_to(self, data: bytes) -> Reply:
        try:
            return self._on_request(msgspec.json.decode(data, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {"ok": False, "error": "invalid request: expected one JSON object"}
        except Exception as error:  # a failing request must not stop the run
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """Close and delete the socket. A second call does nothing."""
        if self._socket.fileno() >= 0:
            # The loop may be closed already.
            with suppress(KeyError, ValueError, RuntimeError, OSError):
                self._loop.unwatch(self._socket.fileno())
            self._socket.close()
        for remove in (self.path.unlink, *([self.path.parent.rmdir] if self._owns_folder else ())):
            with suppress(OSError):
                remove()


def _is_from_own_user(ancillary: list[tuple[int, int, bytes]]) -> bool:
    """Whether the kernel says that the sender is our user, or root, who may do everything."""
    if not HAS_SENDER_UID:
        return True
    uids = [
        CREDENTIALS.unpack(data[: CREDENTIALS.size])[1]
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
    ]
    return len(uids) == 1 and uids[0] in (os.getuid(), 0)


def _short_parent() -> str:
    """The system's folder for temporary files, or /tmp if its path is too long for sockets."""
    folder = tempfile.gettempdir()
    is_short = len(os.fsencode(folder)) < MAX_SOCKET_PATH_BYTES - 30
    return folder if is_short else "/tmp"  # noqa: S108  # names in it are random


def send_request(
    path: str, message: dict[str, Any], timeout: float = REPLY_TIMEOUT_SECONDS
) -> Reply:
    """Send a request and wait for the reply. StenoError if there is none."""
    data = msgspec.json.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise StenoError(f"message too long: {len(data):,} bytes (maximum {MAX_MESSAGE_BYTES:,})")
    try:
        with (
            temporary_folder(_short_parent()) as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own,
        ):
            own.settimeout(timeout)
            own.bind(f"{folder}/a")
            own.sendto(data, path)
            return msgspec.json.decode(own.recv(MAX_MESSAGE_BYTES), type=Reply)
    except TimeoutError:
        raise StenoError(f"no reply from the run within {timeout:g} s") from None
    except (OSError, msgspec.MsgspecError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StenoError(f"cannot reach the run: {reason}") from None


# -- recovery --------------------------------------------------------------------------------------


def supersede_run(run: str, reason: str) -> None:
    """Let the result of a run that is missing in the ledger not count.

    Its task was given to another worker while this machine had no contact.
    """
    for info in lost_runs():
        if info.run == run and info.over and info.tape is not None:
            with suppress(OSError):  # without its recording, the run is never imported
                mark_superseded(info.tape, reason)


def recover_runs(store: Store) -> list[str]:
    """Recover lost runs: terminate their processes and import their recordings; messages.

    A run of another ledger is left for that one.
    """
    terminate_orphans()
    return [text for info in lost_runs() if (text := _recover_run(store, info)) is not None]


def _recover_run(store: Store, info: RunInfo) -> str | None:
    run = find_run(store, info.run)
    has_recording = info.tape is not None and _has_content(Path(info.tape))
    if has_recording and run is None and info.ledger != ledger_location(store.name):
        return None
    is_incomplete = has_recording and (run is None or run.verdict is None)
    if is_incomplete and info.tape is not None:
        from ..ledger.importer import import_sources  # lazy: loads every reader

        if _was_started_again(store, info):
            with suppress(OSError):  # read below, with a message
                mark_superseded(info.tape, "the task was started again before this run was known")
        if run is None:
            _insert_lost_run(store, info)
        import_sources(store, [info.tape])
        run = find_run(store, info.run)
    if run is not None:
        with store.transaction():
            finish_lost_task(store, info.task, run.verdict)
    remove_run_info(info)
    if not is_incomplete:
        return None
    cause = (
        "could not be written to the ledger"
        if info.over
        else "was lost: its steno process was killed"
    )
    return f"run {info.run} {cause}; recovered from its recording"


def _was_started_again(store: Store, info: RunInfo) -> bool:
    """Whether the ledger has a later run of the same task."""
    sql = "SELECT 1 FROM runs WHERE task = ? AND id <> ? AND started_at > ? LIMIT 1"
    return bool(store.query(sql, (info.task, info.run, int(info.started * 1000))))


def _has_content(recording: Path) -> bool:
    """Whether a recording was begun; an empty one is deleted: steno was killed before its header.

    Nothing had been started then, and the ledger does not know the run.
    """
    with suppress(OSError):
        if recording.stat().st_size:
            return True
        recording.unlink()
    return False


def _insert_lost_run(store: Store, info: RunInfo) -> None:
    """Write what the import may not know: the session that the run was started with."""
    with store.transaction():
        insert_active_run(
            store,
            id_=info.run,
            session=info.session,
            task=info.task,
            attempt=None,
            agent=info.agent,
            project=info.cwd,
            source=info.tape or "",
            started_at=int(info.started * 1000),
            prompt=info.prompt,
        )
