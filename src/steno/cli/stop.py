"""`steno stop`: asks a run to end, or kills it, and waits until it has. It asks the run's own steno; it signals nobody."""

import argparse
import time

from ..api import read
from ..errors import StenoError
from ..runner.run_registration import RunInfo, send_request
from ..runner.run_registry import get_active_run
from .live_runs import require_active_run
from .options import CommandParser
from .terminal import print_lines

EXAMPLES = """examples:
  steno stop 3f9a21c0             interrupt it, then terminate, at last kill it; its report is still made
  steno stop --kill 3f9a21c0      at once
  steno stop --no-wait 3f9a21c0   do not wait for the end

ID is the beginning of a run's, a task's or a session's id (`steno ps`). A task that waits for its next attempt
waits no longer.
"""
POLL_SECONDS = 0.05
STOP_TIMEOUT_SECONDS = 60.0  # seconds; a run is given up after ten, and then its report is made


def run(words: list[str]) -> int:
    """Carry out `steno stop` and return its exit code."""
    options = _parse_args(words)
    mark = require_active_run(options.id, options.ledger)
    try:
        answer = send_request(mark.socket or "", {"do": "kill" if options.kill else "stop"})
    except StenoError as problem:
        if (
            not mark.is_alive or get_active_run(mark.run) is None
        ):  # it ended by itself in this moment
            return _print_outcome(mark)
        raise StenoError(f"{mark.run}: {problem}; its steno is process {mark.steno_pid}") from None
    if not answer.get("ok"):
        raise StenoError(f"{mark.run}: {answer.get('error')}")
    return 0 if options.no_wait else _wait_until_stopped(mark)


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "stop", "Ask a run that goes on to end, and wait until it has.", EXAMPLES
    )
    parser.add_argument("id", metavar="ID", help="the beginning of its id")
    parser.add_argument("--kill", action="store_true", help="end all of it at once")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(words)


def _wait_until_stopped(mark: RunInfo) -> int:
    until = time.monotonic() + STOP_TIMEOUT_SECONDS
    while mark.is_alive and get_active_run(mark.run) is not None:
        if time.monotonic() > until:
            raise StenoError(
                f"{mark.run}: it was asked to end, and still goes on after {STOP_TIMEOUT_SECONDS:.0f} s; try --kill"
            )
        time.sleep(POLL_SECONDS)
    return _print_outcome(mark)


def _print_outcome(mark: RunInfo) -> int:
    """How it ended, by its own tape."""
    if mark.tape is None:
        print_lines([f"{mark.run} ended"])
        return 0
    report = read(mark.tape)
    print_lines([f"{mark.run} ended: {report.verdict}"])
    return 0
