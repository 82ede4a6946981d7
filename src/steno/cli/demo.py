"""`steno demo`: plays two recorded runs through run, runs and usage.

Everything happens in a temporary folder: the user's ledger and settings are not touched.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..private_files import temporary_folder
from .commands import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED
from .options import CommandParser, number_type

EXAMPLES = """examples:
  steno demo              a successful run, a run without permissions, the ledger, the usage
  steno demo --speed 0    without waiting
"""
RECORDINGS_DIR = Path(__file__).parent.parent / "demo"
STOP_EXIT_CODES = (EXIT_INTERRUPTED, EXIT_PIPE_CLOSED)
XDG_VARIABLES = ("XDG_DATA_HOME", "XDG_CONFIG_HOME")


def run(args: list[str]) -> int:
    """Run `steno demo`. Its exit code is 0 whatever its commands return, unless interrupted."""
    parser = CommandParser(
        "demo", "Replay two recorded runs: progress, summary, list of runs, usage.", EXAMPLES
    )
    parser.add_argument(
        "--speed",
        metavar="N",
        type=number_type("a number of at least 0", 0, sys.float_info.max),
        default=0.3,
        help="playback speed (default: 0.3); 0 plays without pauses",
    )
    parser.add_debug()
    speed = f"{parser.parse_args(args).speed:g}"
    commands = (
        ("run", *_replay_options("finished", speed), "make the failing test pass"),
        ("run", *_replay_options("refused", speed), "--log", "write a file"),
        ("runs", "--no-import"),
        ("usage", "--no-import"),
    )
    sys.stdout.write("HP in the output is the free part of the model's context window.\n")
    with _temporary_home():
        for command in commands:
            code = _run_and_echo(*command)
            if code in STOP_EXIT_CODES:
                return code
    return 0


def _replay_options(name: str, speed: str) -> tuple[str, ...]:
    """Options that play a recording, with a relative path where possible."""
    path = RECORDINGS_DIR / name
    here = Path.cwd()
    return (
        "--agent",
        "replay",
        "--recording",
        str(path.relative_to(here) if path.is_relative_to(here) else path),
        "--speed",
        speed,
    )


def _run_and_echo(*args: str) -> int:
    from . import import_command

    sys.stdout.write(f"\n$ steno {shlex.join(args)}\n")
    sys.stdout.flush()
    code = import_command(args[0])(list(args[1:]))
    sys.stdout.write(f"(exit code {code})\n" if code else "")
    sys.stdout.flush()
    return code


@contextmanager
def _temporary_home() -> Iterator[None]:
    """Let the commands store their data in a temporary folder."""
    before = {name: os.environ.get(name) for name in (*XDG_VARIABLES, "STENO_LEDGER")}
    with temporary_folder() as folder:
        os.environ.update({name: f"{folder}/{name}" for name in XDG_VARIABLES})
        os.environ.pop("STENO_LEDGER", None)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
