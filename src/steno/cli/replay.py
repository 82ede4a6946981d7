"""`steno replay`: plays a recording as if it were the agent: its bytes, its times, its exit code, its deaf ears.

It parses, writes to the two streams and ends as the agent did; `play` knows what is due.
"""

import argparse
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..recording.replay import Player, ReplaySource
from .options import CommandParser

EXAMPLES = """examples:
  steno replay run.steno                   a tape, at its own pace
  steno replay run.steno --speed 20        twenty times as fast
  steno replay recordings/max_turns --no-wait | my-orchestrator
  steno replay run.steno -- -p --model opus what follows -- is for the agent, and does not matter
  steno run --agent replay --tape run.steno "the prompt does not matter"

FILE is a tape, a folder with stdout (and stderr, exit_code, timing.jsonl where they exist), or a file with
what an agent printed. It ends with the recorded exit code, or by the recorded signal; with 0 where none
is known. A signal that the agent did not heed is not heeded; to one that it answered, its answer is played;
any other ends it.
"""
STREAM_FDS = {"out": 1, "err": 2}


def run(words: list[str]) -> int:
    """Carry out `steno replay` and return the exit code of the recording."""
    options = _parse_args(words)
    recording = ReplaySource(Path(options.file))
    wait = _install_signal_handling(recording)
    code = Player(recording, 0.0 if options.no_wait else options.speed, _write_stream, wait).play()
    return 0 if code is None else code if code >= 0 else _exit_by_signal(-code)


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "replay", "Play a recording as if it were the agent, to test what runs agents.", EXAMPLES
    )
    parser.usage = "steno replay [OPTIONS] FILE [-- the arguments of an agent]"
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a tape, the folder of a recording, or what an agent printed",
    )
    parser.add_argument(
        "--speed",
        metavar="N",
        type=_parse_speed,
        default=1.0,
        help="so many times as fast (1); 0: do not wait",
    )
    parser.add_argument("--no-wait", action="store_true", help="as fast as it can be written")
    parser.add_debug()
    end = words.index("--") if "--" in words else len(words)
    options, more = parser.parse_intermixed_args(words[:end]), words[end + 1 :]
    if options.file is None:  # a name that begins with a dash stands behind the dashes
        if not more:
            parser.error("the following arguments are required: FILE")
        if more[1:2] not in ([], ["--"]):
            parser.error(f"unrecognized arguments: {' '.join(more[1:])}")
        options.file = more[0]
    return options


def _parse_speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number that is not below 0, found {text!r}")
    return speed


def _install_signal_handling(recording: ReplaySource) -> Callable[[float], int | None]:
    """Take signals as the agent took them; returns how to wait for one."""
    came: list[int] = []
    bell, rope = os.pipe()
    for end in (bell, rope):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
    for number in {
        signal.SIGINT,
        signal.SIGTERM,
        *recording.ignored_signals,
        *recording.answered_signals,
    } - {signal.SIGKILL, signal.SIGSTOP}:
        how = signal.SIG_IGN if number in recording.ignored_signals else signal.SIG_DFL
        with suppress(OSError, ValueError):  # a number that this system does not know
            signal.signal(
                number,
                (lambda got, _: came.append(got)) if number in recording.answered_signals else how,
            )

    def wait(seconds: float) -> int | None:
        if not came and select.select([bell], [], [], seconds)[0]:
            os.read(bell, 64)
        return came.pop(0) if came else None

    return wait


def _write_stream(stream: str, data: bytes) -> None:
    """All of it. When nobody reads stdout any more the program ends; a closed stderr is passed over."""
    rest, descriptor = memoryview(data), STREAM_FDS[stream]
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            if stream == "out":
                raise
            return


def _exit_by_signal(number: int) -> int:
    """End by a signal, as the agent did. The code that a shell would show is for a signal that does not end us."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is not us who failed
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 128 + number
