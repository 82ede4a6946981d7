"""`steno stop`: asks a run to end, or kills it, and waits until it has. It asks the run's own steno; it signals nobody."""

import argparse
import time

from ..api import read
from ..report import StenoError
from ..supervise.live import Live, ask
from ..supervise.marks import find
from .options import Parser
from .steered import meant
from .terminal import put

EXAMPLES = """examples:
  steno stop 3f9a21c0             interrupt it, then terminate, at last kill it; its report is still made
  steno stop --kill 3f9a21c0      at once
  steno stop --no-wait 3f9a21c0   do not wait for the end

ID is the beginning of a run's, a task's or a session's id (`steno ps`). A task that waits for its next attempt
waits no longer.
"""
POLL = 0.05
PATIENCE = 60.0  # seconds; a run is given up after ten, and then its report is made


def run(words: list[str]) -> int:
    """Carry out `steno stop` and return its exit code."""
    options = _options(words)
    mark = meant(options.id, options.ledger)
    try:
        answer = ask(mark.socket or "", {"do": "kill" if options.kill else "stop"})
    except StenoError as problem:
        if not mark.alive or find(mark.run) is None:  # it ended by itself in this moment
            return _told(mark)
        raise StenoError(f"{mark.run}: {problem}; its steno is process {mark.steno_pid}") from None
    if not answer.get("ok"):
        raise StenoError(f"{mark.run}: {answer.get('error')}")
    return 0 if options.no_wait else _awaited(mark)


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("stop", "Ask a run that goes on to end, and wait until it has.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="the beginning of its id")
    parser.add_argument("--kill", action="store_true", help="end all of it at once")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_ledger(imports=False)
    return parser.given(words)


def _awaited(mark: Live) -> int:
    until = time.monotonic() + PATIENCE
    while mark.alive and find(mark.run) is not None:
        if time.monotonic() > until:
            raise StenoError(f"{mark.run}: it was asked to end, and still goes on after {PATIENCE:.0f} s; try --kill")
        time.sleep(POLL)
    return _told(mark)


def _told(mark: Live) -> int:
    """How it ended, by its own tape."""
    if mark.tape is None:
        put([f"{mark.run} ended"])
        return 0
    report = read(mark.tape)
    put([f"{mark.run} ended: {report.verdict}"])
    return 0
