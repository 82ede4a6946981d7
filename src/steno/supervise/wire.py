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

from ..process.wheel import Wheel
from ..report import StenoError

LONGEST = 100  # bytes of a socket's path: the system's own limit is 104 to 108
MOST = 128 << 10  # bytes of a message: a datagram must fit the socket's buffer
ANSWER = 5.0  # seconds to wait for an answer: a loop turns many times a second
A_TURN = 16  # messages taken in one turn of the loop

Answer = dict[str, Any]
Obey = Callable[[dict[str, Any]], Answer]


class Wire:
    """The run's end: hands each message to `obey`, and sends back what that answers. OSError if it cannot be laid."""

    def __init__(self, wheel: Wheel, path: Path, obey: Obey) -> None:
        self.path, self._own = _short(path)
        self._wheel, self._obey = wheel, obey
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._bind()
            wheel.watch(self._socket.fileno(), self._read)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self) -> None:
        """From the first moment nobody but the owner may write to it. Not by the umask: that is every thread's."""
        with suppress(OSError):  # Linux makes the name with the mode that the socket has
            os.fchmod(self._socket.fileno(), 0o600)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)

    def _read(self) -> None:
        for _ in range(A_TURN):
            try:
                data, sender = self._socket.recvfrom(MOST + 1)
            except OSError:
                return  # nothing more, for now
            answer = self._answer(data)
            if sender:
                with suppress(OSError):  # whoever asked does not wait any more
                    self._socket.sendto(msgspec.json.encode(answer), sender)

    def _answer(self, data: bytes) -> Answer:
        try:
            return self._obey(msgspec.json.decode(data, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {"ok": False, "error": "a message is one JSON object"}
        except Exception as problem:  # what was asked for failed; the run goes on
            return {"ok": False, "error": f"{type(problem).__name__}: {problem}"}

    def close(self) -> None:
        """Take it away. A second call does nothing."""
        if self._socket.fileno() >= 0:
            with suppress(KeyError, ValueError, RuntimeError, OSError):  # the loop may be closed before
                self._wheel.unwatch(self._socket.fileno())
            self._socket.close()
        for remove in (self.path.unlink, *([self.path.parent.rmdir] if self._own else ())):
            with suppress(OSError):
                remove()


def _short(path: Path) -> tuple[Path, bool]:
    """A path that the system takes for a socket; whether its folder was made for it."""
    if len(os.fsencode(path)) <= LONGEST:
        return path, False
    return _folder() / "s", True


def _folder() -> Path:
    """A folder of our own with a short name."""
    found = Path(tempfile.mkdtemp(prefix="steno-"))
    if len(os.fsencode(found)) < LONGEST - 4:
        return found
    found.rmdir()
    return Path(tempfile.mkdtemp(prefix="steno-", dir="/tmp"))  # a name that nobody can guess, for us alone


def ask(path: str, message: dict[str, Any], patience: float = ANSWER) -> Answer:
    """The other end: send one message and wait for the answer. StenoError if there is none."""
    data = msgspec.json.encode(message)
    if len(data) > MOST:
        raise StenoError(f"a message of {len(data):,} bytes is too long: {MOST:,} are the most")
    folder = _folder()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.settimeout(patience)
            own.bind(str(folder / "a"))
            own.sendto(data, path)
            return msgspec.json.decode(own.recv(MOST), type=Answer)
    except TimeoutError:
        raise StenoError(f"it did not answer within {patience:g} s") from None
    except (OSError, msgspec.MsgspecError) as problem:
        raise StenoError(f"it cannot be reached: {getattr(problem, 'strerror', None) or problem}") from None
    finally:
        for remove in ((folder / "a").unlink, folder.rmdir):
            with suppress(OSError):
                remove()
