"""`steno send`: sends a message to an active run through its control socket."""

import argparse

from ..errors import StenoError
from ..runner.run_registry import send_request
from .options import CommandParser
from .ps import require_active_run
from .terminal import stdin_bytes

EXAMPLES = """examples:
  steno send 3f9a21c0 "also update the changelog"
  git diff | steno send 3f9a21c0 -

ID is a prefix of a run, task or session ID (see: steno ps). The run must have been started with
`steno run --steer`, and must not have printed its result yet.
"""


def run(args: list[str]) -> int:
    """Run `steno send` and return its exit code."""
    options = _parse_args(args)
    text = stdin_bytes().read().decode("utf-8", "replace") if options.text == "-" else options.text
    if not text.strip():
        raise StenoError("nothing to send: the message is empty")
    info = require_active_run(options.id, options.ledger)
    try:
        answer = send_request(info.socket or "", {"do": "send", "text": text})
    except StenoError as error:
        raise StenoError(f"{info.run}: {error}") from None
    if not answer.get("ok"):
        raise StenoError(f"{info.run}: {answer.get('error')}")
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("send", "Send a message to an active run.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="run, task or session ID, or a prefix of it")
    parser.add_argument("text", metavar="TEXT", help="message; - reads stdin")
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)
