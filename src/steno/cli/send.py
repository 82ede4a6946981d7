"""`steno send`: says something to an agent while it runs, where it takes messages. It asks the run's own steno to."""

import argparse

from ..errors import StenoError
from ..runner.run_registration import send_request
from .live_runs import require_active_run
from .options import CommandParser
from .terminal import stdin_bytes

EXAMPLES = """examples:
  steno send 3f9a21c0 "also update the changelog"
  git diff | steno send 3f9a21c0 -

ID is the beginning of a run's, a task's or a session's id (`steno ps`). The run must have been started with
`steno run --steer`, and its turn must not be closed yet.
"""


def run(words: list[str]) -> int:
    """Carry out `steno send` and return its exit code."""
    options = _parse_args(words)
    text = stdin_bytes().read().decode("utf-8", "replace") if options.text == "-" else options.text
    if not text.strip():
        raise StenoError("there is nothing to send: the text is empty")
    mark = require_active_run(options.id, options.ledger)
    try:
        answer = send_request(mark.socket or "", {"do": "send", "text": text})
    except StenoError as problem:
        raise StenoError(f"{mark.run}: {problem}") from None
    if not answer.get("ok"):
        raise StenoError(f"{mark.run}: {answer.get('error')}")
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser("send", "Say something to an agent while it runs.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="the beginning of its id")
    parser.add_argument("text", metavar="TEXT", help="what is said; - is stdin")
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(words)
