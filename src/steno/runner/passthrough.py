"""From one descriptor to another, byte for byte, at once: what was read is written before anybody else sees it.

It waits for whoever reads, as `cat` does, and for nobody else. It never looks at the bytes, and never keeps them.
"""

import errno
import fcntl
import io
import os
import stat
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from select import POLLIN, POLLOUT, poll, select

from ..errors import SourceError

MAX_READ_BYTES = (
    1 << 18
)  # bytes a read at most: a file gives all that is asked for, a pipe what it holds
DEFAULT_PIPE_BYTES = 1 << 16  # bytes that a pipe holds
BULK_AFTER_FULL_READS = 8  # full pipes in a row after which both are made to hold `SIZE`: somebody sends all that there is, not as it comes to be
MAX_UNSEEN_BYTES = (
    1 << 18
)  # bytes that may have passed without having been looked at: then they are, whatever else comes
IDLE_SECONDS = 0.0001  # seconds of silence after which we look: until then the processor belongs to whoever reads
SPLICE_F_NONBLOCK = 2  # SPLICE_F_NONBLOCK
EMPTY_PIPE_FIONREAD = bytes(4)  # what FIONREAD says of an empty pipe
MAX_LINE_BYTES = (
    32 << 20
)  # bytes of a line that is still read as one: an agent's largest, with pictures in it, have a few megabytes


# From, to, how many, how: bytes that were handed on from one pipe to another and are still in the first, or -errno.
TeeFunction = Callable[[int, int, int, int], int]


class SignalReceived(Exception):  # noqa: N818  # a signal, while we waited for a descriptor; it never leaves this module
    """A signal asks for the end."""


class PassThrough(io.RawIOBase):
    """What comes in goes out, and is seen on its way. It is read once: by `chunks`, by `lines` or by `drain`.

    When `over`, both descriptors have been let go of: whoever is at the other ends knows before we go on with anything.
    `gone`: nobody reads any more; `signal`: we were asked to end; `problem`: the system does not let us read or write.
    """

    def __init__(self, source: int = 0, target: int = 1) -> None:
        super().__init__()
        self.is_finished = self.is_reader_gone = False
        self.stop_signal: int | None = None
        self.problem: SourceError | OSError | None = None
        self._source, self._target = source, target
        self._can_read = True  # the next read may be made
        self._unseen_bytes = 0  # bytes since somebody looked
        self._was_pipe_full = False  # the last read emptied a full pipe: that is as much as may wait, and more need not be asked for
        self._pipe_bytes = DEFAULT_PIPE_BYTES
        self._full_reads = 0  # full pipes in a row
        self._tee = _load_tee() if _is_pipe(source) and _is_pipe(target) else None  # see `_doubled`
        self._is_waiting = self._is_reading = False  # for a descriptor: a signal must wake us
        self._pollers = {
            (one, what): _make_poller(one, what)
            for one, what in ((source, POLLIN), (target, POLLOUT))
        }

    # -- whoever looks on ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Until it is over, without looking."""
        buffer = memoryview(bytearray(MAX_READ_BYTES))
        while not self.is_finished:
            self._can_read = True
            self.readinto(buffer)
            if self._should_yield():  # whoever reads has had a moment for it
                self._unseen_bytes = 0

    def chunks(self) -> Iterator[bytes]:
        """What has passed, as it came."""
        buffer = memoryview(bytearray(MAX_READ_BYTES))
        passed: list[bytes] = []
        while not self.is_finished:
            self._can_read = True
            passed.append(bytes(buffer[: self.readinto(buffer) or 0]))
            if self._should_yield():
                yield from filter(None, passed)
                passed, self._unseen_bytes = [], 0

    def lines(self) -> Iterator[list[bytes]]:
        """The lines that have passed, with their newlines, as soon as they are whole and there is time to look at them.

        A line that is longer than anybody reads comes in pieces.
        """
        buffered = io.BufferedReader(
            self, MAX_READ_BYTES
        )  # cuts lines from its own buffer: a quarter cheaper than from bytes objects
        held: list[bytes] = []
        whole: list[bytes] = []
        while not self.is_finished:
            self._can_read = True
            buffered.peek(
                1
            )  # one read; its lines are then found in what is there, which is faster than while it comes
            lines = list(buffered)
            whole += _complete_lines(held, lines) if lines else ()
            if self._should_yield():
                if whole:
                    yield whole
                whole, self._unseen_bytes = [], 0
        if held:
            yield [b"".join(held)]

    def _should_yield(self) -> bool:
        """Whether to look at what has passed: it is much, or nothing more comes for a moment.

        Bytes go first, and so does whoever was woken by them.
        """
        return (
            self.is_finished
            or self._was_pipe_full
            or self._unseen_bytes >= MAX_UNSEEN_BYTES
            or not select([self._source], [], [], IDLE_SECONDS)[0]
        )

    # -- bytes -----------------------------------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # a BufferedReader gives one
        """One read, and all of it written. None: not now, so that a buffer gives out what it has before it waits for more."""
        if not self._can_read or self.is_finished:
            return 0 if self._can_read else None
        self._can_read = False
        count = self._pass_once(buffer)
        self._unseen_bytes += count
        self._was_pipe_full = count * 2 >= self._pipe_bytes  # the pages of a pipe are seldom full
        self._full_reads = self._full_reads + 1 if self._was_pipe_full else 0
        if self._full_reads == BULK_AFTER_FULL_READS and self._pipe_bytes == DEFAULT_PIPE_BYTES:
            self._enlarge_pipes()
        if (
            not count
            or self.is_reader_gone
            or self.problem is not None
            or self.stop_signal is not None
        ):
            self._release()
        return count

    def _enlarge_pipes(self) -> None:
        """Let both pipes hold more, where they are pipes and the system allows it: fewer turns between three processes.

        Only in bulk: such room is scarce where hundreds of agents run, and one that speaks as it works never needs it.
        """
        wider = getattr(fcntl, "F_SETPIPE_SZ", None)  # of Linux
        if wider is None:
            return
        with suppress(OSError):
            fcntl.fcntl(self._target, wider, MAX_READ_BYTES)
            self._pipe_bytes = fcntl.fcntl(self._source, wider, MAX_READ_BYTES)

    def _pass_once(self, buffer: memoryview) -> int:
        """What was read counts, also where it could not be written any more. No signal comes between bytes and their count."""
        count = 0
        try:
            passed = self._tee_and_read(self._tee, buffer) if self._tee is not None else -1
            if passed >= 0:
                count = passed
            else:
                count = self._read(buffer)
                self._is_reading, self._is_waiting = False, True
                self._write(buffer[:count])
                self._is_waiting = False
        except SignalReceived:
            pass
        except BrokenPipeError:
            self.is_reader_gone = True
        except (SourceError, OSError) as problem:
            self.problem = problem
        return count

    def _tee_and_read(self, tee: TeeFunction, buffer: memoryview) -> int:
        """Have the system hand on what comes from one pipe to the other, and read it then. -1: read and write.

        Nothing of ours stands between a line and its reader: a loop that reads and then writes takes 20 µs for it when it was
        asleep. Where it waits, a signal ends it, and nothing was handed on. In bulk it is a copy less.
        """
        bulk = self._pipe_bytes > DEFAULT_PIPE_BYTES
        if bulk:
            if not self._wait(self._source, POLLIN) & POLLIN:
                return -1  # nothing comes any more: that is for a read to tell
            self._wait(self._target, POLLOUT)
        elif self.stop_signal is not None:
            raise SignalReceived
        elif self._has_unread_output():
            return -1
        count = tee(self._source, self._target, len(buffer), SPLICE_F_NONBLOCK if bulk else 0)
        if count == -errno.EPIPE:
            self.is_reader_gone = True
            return self._read(buffer)  # what came in counts
        if (
            count <= 0
        ):  # a signal, or the end; or somebody else has just filled the pipe that we write to; or it cannot be done
            self._tee = tee if count in (0, -errno.EAGAIN, -errno.EINTR) else None
            return -1
        done = 0
        while done < count:
            done += os.readv(self._source, [buffer[done:count]])
        return count

    def _has_unread_output(self) -> bool:
        """Whether there is something that nobody has read yet: lines that are not copied fill a pipe when there are sixteen."""
        return (
            fcntl.ioctl(self._target, termios.FIONREAD, EMPTY_PIPE_FIONREAD) != EMPTY_PIPE_FIONREAD
        )

    def _read(self, buffer: memoryview) -> int:
        while True:
            self._is_reading = True
            if self.stop_signal is not None:  # it came while we did not wait
                raise SignalReceived
            try:
                return os.readv(self._source, [buffer])
            except BlockingIOError:  # somebody made it so, and that is ours as well
                self._is_reading = False
                self._wait(self._source, POLLIN)
            except OSError as problem:
                raise SourceError(f"stdin cannot be read: {problem.strerror or problem}") from None

    def _write(self, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                self._pollers[self._target, POLLOUT].poll()

    def _wait(self, descriptor: int, what: int) -> int:
        """Until something can be read or written, or never can be: what the system says of it. Stopped by a signal."""
        self._is_waiting = True
        if self.stop_signal is not None:
            raise SignalReceived
        ready = self._pollers[descriptor, what].poll()
        self._is_waiting = False
        return ready[0][1]

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self, number: int) -> None:
        """A signal says that it is to end: called from its handler. What was read before is still handed on."""
        self.stop_signal = number
        if (
            self._is_reading and self._detach_source()
        ):  # not by raising: it may have read by now, and nobody would know how much
            self._is_reading = False
        elif self._is_reading or self._is_waiting:
            self._is_reading = self._is_waiting = False
            raise SignalReceived

    def _detach_source(self) -> bool:
        """From now on a read finds the end, also the one that the system takes up again after the signal."""
        try:
            nowhere = os.open(os.devnull, os.O_RDONLY)
        except OSError:  # too many are open
            return False
        os.dup2(nowhere, self._source)
        os.close(nowhere)
        return True

    def _release(self) -> None:
        """Let both ends know. The numbers stay taken: nothing that is opened later may get them."""
        self.is_finished, self._is_waiting, self._is_reading = True, False, False
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
        except OSError:  # too many are open: then the numbers are not kept
            os.close(self._source)
            os.close(self._target)
            return
        os.dup2(nowhere, self._source)
        os.dup2(nowhere, self._target)
        os.close(nowhere)


def _complete_lines(held: list[bytes], lines: list[bytes]) -> list[bytes]:
    """The lines that are whole, with what was held of the first; what is left of the last is held."""
    if held:
        held.append(lines[0])
        if lines[0][-1:] != b"\n" and sum(map(len, held)) < MAX_LINE_BYTES:
            return []
        lines[0] = b"".join(held)
        held.clear()
    if lines[-1][-1:] != b"\n" and len(lines[-1]) < MAX_LINE_BYTES:
        held.append(lines.pop())
    return lines


def _make_poller(descriptor: int, what: int) -> poll:
    found = poll()
    found.register(descriptor, what)
    return found


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _load_tee() -> TeeFunction | None:
    """Linux's tee(2), for which Python has no name."""
    import ctypes  # only where there are two pipes: loading it takes some milliseconds

    try:
        call = ctypes.CDLL(None, use_errno=True).tee
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
    call.restype = ctypes.c_ssize_t

    def tee(source: int, target: int, size: int, how: int) -> int:
        count: int = call(source, target, size, how)
        return count if count >= 0 else -ctypes.get_errno()

    return tee
