"""`steno stop`: stops an active run through its control socket and waits for it."""

import argparse
import time

from ..api import read
from ..errors import StenoError
from ..runner.run_registry import RunInfo, get_active_run, send_request
from .options import CommandParser
from .ps import require_active_run
from .terminal import print_lines

EXAMPLES = """examples:
  steno stop 3f9a21c0             interrupt, then terminate, then kill the agent
  steno stop --kill 3f9a21c0      kill the agent immediately
  steno stop --no-wait 3f9a21c0   return immediately

ID is a prefix of a run, task or session ID (see: steno ps). A stopped run still gets a report. A
task that is waiting for its next attempt stops waiting.
"""
POLL_SECONDS = 0.05
STOP_TIMEOUT_SECONDS = 60.0  # a run gives up on its agent after 10 s, then writes its report


def run(args: list[str]) -> int:
    """Run `steno stop` and return its exit code."""
    options = _parse_args(args)
    info = require_active_run(options.id, options.ledger)
    try:
        answer = send_request(info.socket or "", {"do": "kill" if options.kill else "stop"})
    except StenoError as error:
        if not info.is_alive or get_active_run(info.run) is None:  # finished in the meantime
            return _print_outcome(info)
        raise StenoError(f"{info.run}: {error}; its steno process is {info.steno_pid}") from None
    if not answer.get("ok"):
        raise StenoError(f"{info.run}: {answer.get('error')}")
    return 0 if options.no_wait else _wait_until_stopped(info)


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("stop", "Stop an active run and wait for it to exit.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="run, task or session ID, or a prefix of it")
    parser.add_argument("--kill", action="store_true", help="kill the agent immediately")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for it to exit")
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)


def _wait_until_stopped(info: RunInfo) -> int:
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while info.is_alive and get_active_run(info.run) is not None:
        if time.monotonic() > deadline:
            raise StenoError(
                f"{info.run}: still running after {STOP_TIMEOUT_SECONDS:.0f} s; try --kill"
            )
        time.sleep(POLL_SECONDS)
    return _print_outcome(info)


def _print_outcome(info: RunInfo) -> int:
    """Print the verdict of its recording."""
    if info.tape is None:
        print_lines([f"{info.run} ended"])
        return 0
    report = read(info.tape)
    print_lines([f"{info.run} ended: {report.verdict}"])
    return 0
