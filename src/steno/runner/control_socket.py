"""Control socket of an active run: JSON requests and replies, one datagram each.

Requests look like {"do": "stop"} or {"do": "send", "text": ...}. Only the owner can connect, and no
input raises.
"""

import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..errors import StenoError
from ..process.event_loop import EventLoop

MAX_SOCKET_PATH_BYTES = 100  # the system's own limit is 104 to 108
MAX_MESSAGE_BYTES = 128 << 10  # a datagram must fit the socket's buffer
REPLY_TIMEOUT_SECONDS = 5.0
MAX_MESSAGES_PER_STEP = 16  # requests handled in one step of the loop

Reply = dict[str, Any]
RequestCallback = Callable[[dict[str, Any]], Reply]


class ControlSocket:
    """The run's end: passes each request to `on_request` and sends its reply."""

    def __init__(self, loop: EventLoop, path: Path, on_request: RequestCallback) -> None:
        self.path, self._owns_folder = _usable_socket_path(path)
        self._loop = loop
        self._on_request = on_request
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind()
            loop.watch(self._socket.fileno(), self._read_requests)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self) -> None:
        """Bind with mode 0600 from the start. Not by umask, which all threads share."""
        with suppress(OSError):  # Linux creates the file with the socket's own mode
            os.fchmod(self._socket.fileno(), 0o600)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)

    def _read_requests(self) -> None:
        for _ in range(MAX_MESSAGES_PER_STEP):
            try:
                data, sender = self._socket.recvfrom(MAX_MESSAGE_BYTES + 1)
            except OSError:
                return  # no more requests
            reply = self._reply_to(data)
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


def _usable_socket_path(path: Path) -> tuple[Path, bool]:
    """A path short enough for a socket; True if a folder was created for it."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path, False
    return _make_short_folder() / "s", True


def _make_short_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="steno-"))
    if len(os.fsencode(folder)) < MAX_SOCKET_PATH_BYTES - 4:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="steno-", dir="/tmp"))  # private, random name


def send_request(
    path: str, message: dict[str, Any], timeout: float = REPLY_TIMEOUT_SECONDS
) -> Reply:
    """Send a request and wait for the reply. StenoError if there is none."""
    data = msgspec.json.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise StenoError(f"message too long: {len(data):,} bytes (maximum {MAX_MESSAGE_BYTES:,})")
    folder = _make_short_folder()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.settimeout(timeout)
            own.bind(str(folder / "a"))
            own.sendto(data, path)
            return msgspec.json.decode(own.recv(MAX_MESSAGE_BYTES), type=Reply)
    except TimeoutError:
        raise StenoError(f"no reply from the run within {timeout:g} s") from None
    except (OSError, msgspec.MsgspecError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StenoError(f"cannot reach the run: {reason}") from None
    finally:
        for remove in ((folder / "a").unlink, folder.rmdir):
            with suppress(OSError):
                remove()
