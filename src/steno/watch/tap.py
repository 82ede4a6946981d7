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

from ..report import SourceError

SIZE = 1 << 18  # bytes a read at most: a file gives all that is asked for, a pipe what it holds
PIPE = 1 << 16  # bytes that a pipe holds
BULK = 8  # full pipes in a row after which both are made to hold `SIZE`: somebody sends all that there is, not as it comes to be
BEHIND = 1 << 18  # bytes that may have passed without having been looked at: then they are, whatever else comes
MOMENT = 0.0001  # seconds of silence after which we look: until then the processor belongs to whoever reads
NOT_WAITING = 2  # SPLICE_F_NONBLOCK
NOTHING = bytes(4)  # what FIONREAD says of an empty pipe
LONGEST = 32 << 20  # bytes of a line that is still read as one: an agent's largest, with pictures in it, have a few megabytes


# From, to, how many, how: bytes that were handed on from one pipe to another and are still in the first, or -errno.
Tee = Callable[[int, int, int, int], int]


class Stopped(Exception):  # noqa: N818  # a signal, while we waited for a descriptor; it never leaves this module
    """A signal asks for the end."""


class Tap(io.RawIOBase):
    """What comes in goes out, and is seen on its way. It is read once: by `chunks`, by `lines` or by `drain`.

    When `over`, both descriptors have been let go of: whoever is at the other ends knows before we go on with anything.
    `gone`: nobody reads any more; `signal`: we were asked to end; `problem`: the system does not let us read or write.
    """

    def __init__(self, source: int = 0, target: int = 1) -> None:
        super().__init__()
        self.over = self.gone = False
        self.signal: int | None = None
        self.problem: SourceError | OSError | None = None
        self._source, self._target = source, target
        self._free = True  # the next read may be made
        self._passed = 0  # bytes since somebody looked
        self._full = False  # the last read emptied a full pipe: that is as much as may wait, and more need not be asked for
        self._holds = PIPE
        self._row = 0  # full pipes in a row
        self._tee = _tee() if _is_pipe(source) and _is_pipe(target) else None  # see `_doubled`
        self._waits = self._reads = False  # for a descriptor: a signal must wake us
        self._polls = {(one, what): _poll(one, what) for one, what in ((source, POLLIN), (target, POLLOUT))}

    # -- whoever looks on ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Until it is over, without looking."""
        buffer = memoryview(bytearray(SIZE))
        while not self.over:
            self._free = True
            self.readinto(buffer)
            if self._is_time():  # whoever reads has had a moment for it
                self._passed = 0

    def chunks(self) -> Iterator[bytes]:
        """What has passed, as it came."""
        buffer = memoryview(bytearray(SIZE))
        passed: list[bytes] = []
        while not self.over:
            self._free = True
            passed.append(bytes(buffer[: self.readinto(buffer) or 0]))
            if self._is_time():
                yield from filter(None, passed)
                passed, self._passed = [], 0

    def lines(self) -> Iterator[list[bytes]]:
        """The lines that have passed, with their newlines, as soon as they are whole and there is time to look at them.

        A line that is longer than anybody reads comes in pieces.
        """
        buffered = io.BufferedReader(self, SIZE)  # cuts lines from its own buffer: a quarter cheaper than from bytes objects
        held: list[bytes] = []
        whole: list[bytes] = []
        while not self.over:
            self._free = True
            buffered.peek(1)  # one read; its lines are then found in what is there, which is faster than while it comes
            lines = list(buffered)
            whole += _whole(held, lines) if lines else ()
            if self._is_time():
                if whole:
                    yield whole
                whole, self._passed = [], 0
        if held:
            yield [b"".join(held)]

    def _is_time(self) -> bool:
        """Whether to look at what has passed: it is much, or nothing more comes for a moment.

        Bytes go first, and so does whoever was woken by them.
        """
        return self.over or self._full or self._passed >= BEHIND or not select([self._source], [], [], MOMENT)[0]

    # -- bytes -----------------------------------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # a BufferedReader gives one
        """One read, and all of it written. None: not now, so that a buffer gives out what it has before it waits for more."""
        if not self._free or self.over:
            return 0 if self._free else None
        self._free = False
        count = self._pass(buffer)
        self._passed += count
        self._full = count * 2 >= self._holds  # the pages of a pipe are seldom full
        self._row = self._row + 1 if self._full else 0
        if self._row == BULK and self._holds == PIPE:
            self._widen()
        if not count or self.gone or self.problem is not None or self.signal is not None:
            self._let_go()
        return count

    def _widen(self) -> None:
        """Let both pipes hold more, where they are pipes and the system allows it: fewer turns between three processes.

        Only in bulk: such room is scarce where hundreds of agents run, and one that speaks as it works never needs it.
        """
        wider = getattr(fcntl, "F_SETPIPE_SZ", None)  # of Linux
        if wider is None:
            return
        with suppress(OSError):
            fcntl.fcntl(self._target, wider, SIZE)
            self._holds = fcntl.fcntl(self._source, wider, SIZE)

    def _pass(self, buffer: memoryview) -> int:
        """What was read counts, also where it could not be written any more. No signal comes between bytes and their count."""
        count = 0
        try:
            passed = self._doubled(self._tee, buffer) if self._tee is not None else -1
            if passed >= 0:
                count = passed
            else:
                count = self._read(buffer)
                self._reads, self._waits = False, True
                self._write(buffer[:count])
                self._waits = False
        except Stopped:
            pass
        except BrokenPipeError:
            self.gone = True
        except (SourceError, OSError) as problem:
            self.problem = problem
        return count

    def _doubled(self, tee: Tee, buffer: memoryview) -> int:
        """Have the system hand on what comes from one pipe to the other, and read it then. -1: read and write.

        Nothing of ours stands between a line and its reader: a loop that reads and then writes takes 20 µs for it when it was
        asleep. Where it waits, a signal ends it, and nothing was handed on. In bulk it is a copy less.
        """
        bulk = self._holds > PIPE
        if bulk:
            if not self._wait(self._source, POLLIN) & POLLIN:
                return -1  # nothing comes any more: that is for a read to tell
            self._wait(self._target, POLLOUT)
        elif self.signal is not None:
            raise Stopped
        elif self._lags():
            return -1
        count = tee(self._source, self._target, len(buffer), NOT_WAITING if bulk else 0)
        if count == -errno.EPIPE:
            self.gone = True
            return self._read(buffer)  # what came in counts
        if count <= 0:  # a signal, or the end; or somebody else has just filled the pipe that we write to; or it cannot be done
            self._tee = tee if count in (0, -errno.EAGAIN, -errno.EINTR) else None
            return -1
        done = 0
        while done < count:
            done += os.readv(self._source, [buffer[done:count]])
        return count

    def _lags(self) -> bool:
        """Whether there is something that nobody has read yet: lines that are not copied fill a pipe when there are sixteen."""
        return fcntl.ioctl(self._target, termios.FIONREAD, NOTHING) != NOTHING

    def _read(self, buffer: memoryview) -> int:
        while True:
            self._reads = True
            if self.signal is not None:  # it came while we did not wait
                raise Stopped
            try:
                return os.readv(self._source, [buffer])
            except BlockingIOError:  # somebody made it so, and that is ours as well
                self._reads = False
                self._wait(self._source, POLLIN)
            except OSError as problem:
                raise SourceError(f"stdin cannot be read: {problem.strerror or problem}") from None

    def _write(self, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                self._polls[self._target, POLLOUT].poll()

    def _wait(self, descriptor: int, what: int) -> int:
        """Until something can be read or written, or never can be: what the system says of it. Stopped by a signal."""
        self._waits = True
        if self.signal is not None:
            raise Stopped
        ready = self._polls[descriptor, what].poll()
        self._waits = False
        return ready[0][1]

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self, number: int) -> None:
        """A signal says that it is to end: called from its handler. What was read before is still handed on."""
        self.signal = number
        if self._reads and self._nothing_to_read():  # not by raising: it may have read by now, and nobody would know how much
            self._reads = False
        elif self._reads or self._waits:
            self._reads = self._waits = False
            raise Stopped

    def _nothing_to_read(self) -> bool:
        """From now on a read finds the end, also the one that the system takes up again after the signal."""
        try:
            nowhere = os.open(os.devnull, os.O_RDONLY)
        except OSError:  # too many are open
            return False
        os.dup2(nowhere, self._source)
        os.close(nowhere)
        return True

    def _let_go(self) -> None:
        """Let both ends know. The numbers stay taken: nothing that is opened later may get them."""
        self.over, self._waits, self._reads = True, False, False
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
        except OSError:  # too many are open: then the numbers are not kept
            os.close(self._source)
            os.close(self._target)
            return
        os.dup2(nowhere, self._source)
        os.dup2(nowhere, self._target)
        os.close(nowhere)


def _whole(held: list[bytes], lines: list[bytes]) -> list[bytes]:
    """The lines that are whole, with what was held of the first; what is left of the last is held."""
    if held:
        held.append(lines[0])
        if lines[0][-1:] != b"\n" and sum(map(len, held)) < LONGEST:
            return []
        lines[0] = b"".join(held)
        held.clear()
    if lines[-1][-1:] != b"\n" and len(lines[-1]) < LONGEST:
        held.append(lines.pop())
    return lines


def _poll(descriptor: int, what: int) -> poll:
    found = poll()
    found.register(descriptor, what)
    return found


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _tee() -> Tee | None:
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
