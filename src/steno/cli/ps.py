"""`steno ps`: the runs that go on now, with what each is doing. It asks them and prints; it changes nothing."""

import argparse
import time
from typing import Any

import msgspec

from ..errors import StenoError
from ..ledger.queries.time_range import TimeZone
from ..report import Context
from ..runner.run_registration import RunInfo, active_runs, send_request
from ..views.ps import active_runs_table
from .live_runs import recover_finished_runs, short_ids
from .options import CommandParser
from .query_options import format_iso, write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno ps
  steno ps --json | jq -r '.rows[] | select(.silence_s > 60) | .run_id'
  watch -n 1 steno ps

The beginning of an id is enough for `steno tail`, `steno send` and `steno stop`. A run whose steno was killed is
not alive: what its tape holds is taken into the ledger, and `steno runs` shows it.
"""
STATUS_TIMEOUT_SECONDS = 1.0  # seconds that a run gets to say what it does
UNKNOWN_STATUS: dict[str, Any] = {
    "state": "no answer",
    "turns": None,
    "tool": None,
    "target": None,
    "tokens": None,
    "cost_usd": None,
}


def run(words: list[str]) -> int:
    """Carry out `steno ps` and return its exit code."""
    options = _parse_args(words)
    recover_finished_runs(options.ledger)
    marks = active_runs()
    shorts = short_ids([mark.run for mark in marks])
    rows = [_row(mark, shorts[mark.run]) for mark in marks]
    write_result(
        options.form,
        lambda: active_runs_table(rows, detect_style()) if rows else ["No run goes on."],
        lambda: rows,
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ps", "List the runs that go on now, the oldest first, and what each is doing.", EXAMPLES
    )
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(words)


def _row(mark: RunInfo, short: str) -> dict[str, Any]:
    now = time.time()
    told = {
        **UNKNOWN_STATUS,
        "silence_s": None,
        "model": None,
        "context": msgspec.to_builtins(Context()),
        **_query_status(mark),
    }
    told.pop("ok", None)
    return {
        "run_id": mark.run,
        "short": short,
        "task_id": mark.task,
        "session_id": mark.session,
        "agent": mark.agent,
        "pid": mark.steno_pid,
        "agent_pid": mark.agent_pid,
        "started_at": format_iso(round(mark.started * 1000), TimeZone()),
        "elapsed_s": round(now - mark.started, 3),
        "waits_s": None if mark.waits_until is None else max(0.0, round(mark.waits_until - now, 3)),
        "cwd": mark.cwd,
        "tape": mark.tape,
        "takes_messages": mark.steer,
        "prompt": mark.prompt,
        **told,
    }


def _query_status(mark: RunInfo) -> dict[str, Any]:
    try:
        return send_request(mark.socket or "", {"do": "status"}, STATUS_TIMEOUT_SECONDS)
    except StenoError:
        return {}
