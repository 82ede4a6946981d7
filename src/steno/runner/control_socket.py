"""The wire to a run that goes on: short messages by a socket that only its owner can reach, each with an answer.

A message is one JSON object in one datagram: {"do": "stop"}, {"do": "send", "text": ...}. It knows nothing of runs, and
whatever comes in, it never raises.
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

MAX_SOCKET_PATH_BYTES = 100  # bytes of a socket's path: the system's own limit is 104 to 108
MAX_MESSAGE_BYTES = 128 << 10  # bytes of a message: a datagram must fit the socket's buffer
REPLY_TIMEOUT_SECONDS = 5.0  # seconds to wait for an answer: a loop turns many times a second
MAX_MESSAGES_PER_STEP = 16  # messages taken in one turn of the loop

Reply = dict[str, Any]
RequestCallback = Callable[[dict[str, Any]], Reply]


class ControlSocket:
    """The run's end: hands each message to `obey`, and sends back what that answers. OSError if it cannot be laid."""

    def __init__(self, wheel: EventLoop, path: Path, obey: RequestCallback) -> None:
        self.path, self._owns_folder = _usable_socket_path(path)
        self._loop, self._on_request = wheel, obey
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind()
            wheel.watch(self._socket.fileno(), self._read_requests)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self) -> None:
        """From the first moment nobody but the owner may write to it. Not by the umask: that is every thread's."""
        with suppress(OSError):  # Linux makes the name with the mode that the socket has
            os.fchmod(self._socket.fileno(), 0o600)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)

    def _read_requests(self) -> None:
        for _ in range(MAX_MESSAGES_PER_STEP):
            try:
                data, sender = self._socket.recvfrom(MAX_MESSAGE_BYTES + 1)
            except OSError:
                return  # nothing more, for now
            answer = self._reply_to(data)
            if sender:
                with suppress(OSError):  # whoever asked does not wait any more
                    self._socket.sendto(msgspec.json.encode(answer), sender)

    def _reply_to(self, data: bytes) -> Reply:
        try:
            return self._on_request(msgspec.json.decode(data, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {"ok": False, "error": "a message is one JSON object"}
        except Exception as problem:  # what was asked for failed; the run goes on
            return {"ok": False, "error": f"{type(problem).__name__}: {problem}"}

    def close(self) -> None:
        """Take it away. A second call does nothing."""
        if self._socket.fileno() >= 0:
            with suppress(
                KeyError, ValueError, RuntimeError, OSError
            ):  # the loop may be closed before
                self._loop.unwatch(self._socket.fileno())
            self._socket.close()
        for remove in (self.path.unlink, *([self.path.parent.rmdir] if self._owns_folder else ())):
            with suppress(OSError):
                remove()


def _usable_socket_path(path: Path) -> tuple[Path, bool]:
    """A path that the system takes for a socket; whether its folder was made for it."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path, False
    return _make_short_folder() / "s", True


def _make_short_folder() -> Path:
    """A folder of our own with a short name."""
    found = Path(tempfile.mkdtemp(prefix="steno-"))
    if len(os.fsencode(found)) < MAX_SOCKET_PATH_BYTES - 4:
        return found
    found.rmdir()
    return Path(
        tempfile.mkdtemp(prefix="steno-", dir="/tmp")
    )  # a name that nobody can guess, for us alone


def send_request(
    path: str, message: dict[str, Any], timeout: float = REPLY_TIMEOUT_SECONDS
) -> Reply:
    """The other end: send one message and wait for the answer. StenoError if there is none."""
    data = msgspec.json.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise StenoError(
            f"a message of {len(data):,} bytes is too long: {MAX_MESSAGE_BYTES:,} are the most"
        )
    folder = _make_short_folder()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.settimeout(timeout)
            own.bind(str(folder / "a"))
            own.sendto(data, path)
            return msgspec.json.decode(own.recv(MAX_MESSAGE_BYTES), type=Reply)
    except TimeoutError:
        raise StenoError(f"it did not answer within {timeout:g} s") from None
    except (OSError, msgspec.MsgspecError) as problem:
        raise StenoError(
            f"it cannot be reached: {getattr(problem, 'strerror', None) or problem}"
        ) from None
    finally:
        for remove in ((folder / "a").unlink, folder.rmdir):
            with suppress(OSError):
                remove()
