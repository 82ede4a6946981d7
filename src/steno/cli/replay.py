"""`steno replay`: plays a recording as if it were the agent: output, timing, signals, exit code."""

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..recording.replay import Player, ReplaySource
from .ci_log import write_all
from .options import CommandParser, number_type
from .terminal import exit_by_signal

EXAMPLES = """examples:
  steno replay run.steno                   at the original speed
  steno replay run.steno --speed 20        20 times as fast
  steno replay recordings/max_turns --no-wait | my-orchestrator
  steno replay run.steno -- -p --model opus "agent arguments after -- are ignored"
  steno run --agent replay --recording run.steno "the prompt is ignored"

FILE is a recording, a folder with stdout (and stderr, exit_code, timing.jsonl if present), or the
output of an agent. The exit code, or the terminating signal, is the recorded one; 0 if unknown.
Signals that the agent ignored are ignored; for signals that it handled, the recorded reaction is
played; other signals terminate the replay.
"""
STREAM_FDS = {"out": 1, "err": 2}


def run(args: list[str]) -> int:
    """Run `steno replay` and return the exit code of the recording."""
    options = _parse_args(args)
    recording = ReplaySource(Path(options.file))
    wait = _install_signal_handling(recording)
    code = Player(recording, 0.0 if options.no_wait else options.speed, _write_stream, wait).play()
    if code is None:
        return 0
    return code if code >= 0 else exit_by_signal(-code)


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "replay",
        "Print a recorded run as the agent did: same output, timing and exit code.",
        EXAMPLES,
    )
    parser.usage = "steno replay [OPTIONS] FILE [-- AGENT ARGUMENTS]"
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="recording (file or folder), or the output of an agent",
    )
    parser.add_argument(
        "--speed",
        metavar="N",
        type=number_type("a number of at least 0", 0, sys.float_info.max),
        default=1.0,
        help="playback speed (default: 1); 0 plays without pauses",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="play without pauses, like --speed 0"
    )
    parser.add_debug()
    end = args.index("--") if "--" in args else len(args)
    options = parser.parse_intermixed_args(args[:end])
    rest = args[end + 1 :]
    if options.file is None:  # a file name that begins with a dash is given after --
        if not rest:
            parser.error("the following arguments are required: FILE")
        if rest[1:2] not in ([], ["--"]):
            parser.error(f"unexpected argument {rest[1]!r}")
        options.file = rest[0]
    return options


def _install_signal_handling(recording: ReplaySource) -> Callable[[float], int | None]:
    """Handle signals as the agent did; returns a function that waits for one."""
    received: list[int] = []
    read_fd, write_fd = os.pipe()
    for descriptor in (read_fd, write_fd):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in {
        signal.SIGINT,
        signal.SIGTERM,
        *recording.ignored_signals,
        *recording.answered_signals,
    } - {signal.SIGKILL, signal.SIGSTOP}:
        handler: Callable[[int, object], None] | signal.Handlers = signal.SIG_DFL
        if number in recording.answered_signals:
            handler = lambda number, frame: received.append(number)  # noqa: E731  # one of three
        elif number in recording.ignored_signals:
            handler = signal.SIG_IGN
        with suppress(OSError, ValueError):  # a number unknown to this system
            signal.signal(number, handler)

    def wait(seconds: float) -> int | None:
        if not received and select.select([read_fd], [], [], seconds)[0]:
            os.read(read_fd, 64)
        return received.pop(0) if received else None

    return wait


def _write_stream(stream: str, data: bytes) -> None:
    """Write everything. A closed stdout ends the program, a closed stderr is ignored."""
    try:
        write_all(STREAM_FDS[stream], data)
    except OSError:
        if stream == "out":
            raise
