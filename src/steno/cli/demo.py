"""`steno demo`: the whole way with two recorded runs, played as if they were the agent. It only says and calls our own commands.

All of it happens in a folder that is removed at the end: neither your ledger nor your settings are touched.
"""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .options import CommandParser

EXAMPLES = """examples:
  steno demo              a run that mends a test, one that is refused what it needs, the ledger, a report
  steno demo --speed 0    without waiting
"""
RECORDINGS_DIR = Path(__file__).parent.parent / "demo"
STOP_EXIT_CODES = (130, 141)  # interrupted, and nobody reads
XDG_VARIABLES = ("XDG_DATA_HOME", "XDG_CONFIG_HOME")


def run(words: list[str]) -> int:
    """Carry out `steno demo`. The exit codes of its commands are shown; its own is 0, unless somebody has seen enough."""
    parser = CommandParser(
        "demo", "Play two recorded agents through run, verdict, ledger and report.", EXAMPLES
    )
    parser.add_argument(
        "--speed",
        metavar="N",
        default="0.3",
        help="so many times as fast as they ran (0.3); 0: do not wait",
    )
    parser.add_debug()
    speed = parser.parse_args(words).speed
    commands = (
        ("run", *_replay_options("finished", speed), "make the failing test pass"),
        ("run", *_replay_options("refused", speed), "--feed", "write a file"),
        ("runs", "--no-import"),
        ("report", "--no-import"),
    )
    sys.stdout.write("HP, below, is the part of the model's context window that is still free.\n")
    with _temporary_home():
        ends = (
            code for command in commands if (code := _run_and_echo(*command)) in STOP_EXIT_CODES
        )
        return next(ends, 0)


def _replay_options(name: str, speed: str) -> tuple[str, ...]:
    """A recording as the agent, with a path that is short where it can be."""
    path = RECORDINGS_DIR / name
    here = Path.cwd()
    return (
        "--agent",
        "replay",
        "--tape",
        str(path.relative_to(here) if path.is_relative_to(here) else path),
        "--speed",
        speed,
    )


def _run_and_echo(*words: str) -> int:
    from . import main

    sys.stdout.write(f"\n$ steno {shlex.join(words)}\n")
    sys.stdout.flush()
    code = main(list(words))
    sys.stdout.write(f"(exit code {code})\n" if code else "")
    sys.stdout.flush()
    return code


@contextmanager
def _temporary_home() -> Iterator[None]:
    """A place of its own for what the commands keep."""
    before = {name: os.environ.get(name) for name in (*XDG_VARIABLES, "STENO_LEDGER")}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update({name: f"{folder}/{name}" for name in XDG_VARIABLES})
        os.environ.pop("STENO_LEDGER", None)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
