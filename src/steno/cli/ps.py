"""`steno ps`: lists active runs with their current state, as answered by the runs themselves."""

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

An ID prefix is enough for `steno logs`, `steno send` and `steno stop`. A run whose steno process
was killed is imported into the ledger from its recording; `steno runs` lists it.
"""
STATUS_TIMEOUT_SECONDS = 1.0
UNKNOWN_STATUS: dict[str, Any] = {
    "state": "no answer",
    "turns": None,
    "tool": None,
    "target": None,
    "tokens": None,
    "cost_usd": None,
}


def run(args: list[str]) -> int:
    """Run `steno ps` and return its exit code."""
    options = _parse_args(args)
    recover_finished_runs(options.ledger)
    runs = active_runs()
    shorts = short_ids([info.run for info in runs])
    rows = [_row(info, shorts[info.run]) for info in runs]
    write_result(
        options.form,
        lambda: active_runs_table(rows, detect_style()) if rows else ["No active runs."],
        lambda: rows,
    )
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ps", "List active runs, oldest first, with their current state.", EXAMPLES
    )
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)


def _row(info: RunInfo, short: str) -> dict[str, Any]:
    now = time.time()
    status = {
        **UNKNOWN_STATUS,
        "silence_s": None,
        "model": None,
        "context": msgspec.to_builtins(Context()),
        **_query_status(info),
    }
    status.pop("ok", None)
    return {
        "run_id": info.run,
        "short": short,
        "task_id": info.task,
        "session_id": info.session,
        "agent": info.agent,
        "pid": info.steno_pid,
        "agent_pid": info.agent_pid,
        "started_at": format_iso(round(info.started * 1000), TimeZone()),
        "elapsed_s": round(now - info.started, 3),
        "waits_s": None if info.waits_until is None else max(0.0, round(info.waits_until - now, 3)),
        "cwd": info.cwd,
        "tape": info.tape,
        "takes_messages": info.steer,
        "prompt": info.prompt,
        **status,
    }


def _query_status(info: RunInfo) -> dict[str, Any]:
    try:
        return send_request(info.socket or "", {"do": "status"}, STATUS_TIMEOUT_SECONDS)
    except StenoError:
        return {}
