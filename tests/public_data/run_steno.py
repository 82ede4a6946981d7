"""Commands of steno as processes of their own, forked from one that has imported it.

A process per command as a user starts it, without Python's start-up, which takes longer than most
of these commands.
"""

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from msgspec import Struct

from steno.cli import main

TIMEOUT_SECONDS = 120


class Ended(Struct):
    """The exit code of a command, negative for a signal, and what it printed."""

    code: int
    out: bytes
    err: str


def run_steno(home: Path, *words: str | Path, modules: bool = False) -> Ended:
    """Run a command to its end, with this folder as home and data directory.

    `modules`: print the names of its modules after a NUL.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _in_child(home, [str(word) for word in words], out.fileno(), err.fileno(), modules)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        text = err.read().decode("utf-8", "replace")
        return Ended(os.waitstatus_to_exitcode(status), out.read(), text)


def _in_child(home: Path, words: list[str], out: int, err: int, modules: bool) -> None:
    code = 70
    try:
        signal.alarm(TIMEOUT_SECONDS)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for name in [name for name in os.environ if name.startswith(("STENO_", "XDG_", "CLAUDE"))]:
            del os.environ[name]
        os.environ |= {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "STENO_DEBUG": "1"}
        os.environ |= {"TZ": "UTC", "COLUMNS": "100"}
        os.chdir(home)
        code = main(words)
        if modules:
            print("\0", *sys.modules)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def preload(home: Path, source: Path) -> None:
    """Import what the commands need, for all processes: found out by running them on a source."""
    commands = (("show",), ("export", "--format", "html"), ("export", "--format", "md"))
    for words in (*commands, ("ledger", "import", "--ledger", str(home / "preload.db"))):
        _import_all(run_steno(home, *words, source, modules=True).out.split(b"\0")[-1].decode())


def _import_all(names: str) -> None:
    for name in names.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
