"""`steno ps`: the runs that go on now, with what each is doing. It asks them and prints; it changes nothing."""

import argparse
import time
from typing import Any

import msgspec

from ..ledger.ask.zones import Zone
from ..report import Context, StenoError
from ..screen.alive import alive
from ..supervise.live import Live, ask, living
from .asked import iso, write
from .options import Parser
from .steered import recovered, shortened
from .terminal import look

EXAMPLES = """examples:
  steno ps
  steno ps --json | jq -r '.rows[] | select(.silence_s > 60) | .run_id'
  watch -n 1 steno ps

The beginning of an id is enough for `steno tail`, `steno send` and `steno stop`. A run whose steno was killed is
not alive: what its tape holds is taken into the ledger, and `steno runs` shows it.
"""
PATIENCE = 1.0  # seconds that a run gets to say what it does
UNKNOWN: dict[str, Any] = {"state": "no answer", "turns": None, "tool": None, "target": None, "tokens": None, "cost_usd": None}


def run(words: list[str]) -> int:
    """Carry out `steno ps` and return its exit code."""
    options = _options(words)
    recovered(options.ledger)
    marks = living()
    shorts = shortened([mark.run for mark in marks])
    rows = [_row(mark, shorts[mark.run]) for mark in marks]
    write(options.form, lambda: alive(rows, look()) if rows else ["No run goes on."], lambda: rows)
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("ps", "List the runs that go on now, the oldest first, and what each is doing.", EXAMPLES)
    parser.add_forms()
    parser.add_ledger(imports=False)
    return parser.given(words)


def _row(mark: Live, short: str) -> dict[str, Any]:
    now = time.time()
    told = {**UNKNOWN, "silence_s": None, "model": None, "context": msgspec.to_builtins(Context()), **_status(mark)}
    told.pop("ok", None)
    return {
        "run_id": mark.run,
        "short": short,
        "task_id": mark.task,
        "session_id": mark.session,
        "agent": mark.agent,
        "pid": mark.steno_pid,
        "agent_pid": mark.agent_pid,
        "started_at": iso(round(mark.started * 1000), Zone()),
        "elapsed_s": round(now - mark.started, 3),
        "waits_s": None if mark.waits_until is None else max(0.0, round(mark.waits_until - now, 3)),
        "cwd": mark.cwd,
        "tape": mark.tape,
        "takes_messages": mark.steer,
        "prompt": mark.prompt,
        **told,
    }


def _status(mark: Live) -> dict[str, Any]:
    try:
        return ask(mark.socket or "", {"do": "status"}, PATIENCE)
    except StenoError:
        return {}
