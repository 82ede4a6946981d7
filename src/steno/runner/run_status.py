"""The state of active runs for `steno ps` and the page, asked from each run itself."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ..errors import StenoError
from ..report import Context
from .run_registry import RunInfo, active_runs, get_active_run, send_request

STATUS_TIMEOUT_SECONDS = 1.0
MAX_PARALLEL_REQUESTS = 8
UNKNOWN_STATUS: dict[str, Any] = {
    "state": "no answer",
    "turns": None,
    "tool": None,
    "target": None,
    "tokens": None,
    "cost_usd": None,
    "silence_s": None,
    "model": None,
}


def active_run_states() -> list[dict[str, Any]]:
    """The active runs of this machine, oldest first; one that does not reply has `no answer`."""
    infos = active_runs()
    if not infos:
        return []
    with ThreadPoolExecutor(min(MAX_PARALLEL_REQUESTS, len(infos))) as pool:
        return list(pool.map(_run_state, infos))


def run_state(run: str) -> dict[str, Any] | None:
    """The state of one active run of this machine; None if it is not active."""
    info = get_active_run(run)
    return None if info is None else _run_state(info)


def _run_state(info: RunInfo) -> dict[str, Any]:
    now = time.time()
    status = {
        **UNKNOWN_STATUS,
        "context": msgspec.to_builtins(Context()),
        **_query_status(info),
    }
    status.pop("ok", None)
    return {
        "run_id": info.run,
        "task_id": info.task,
        "session_id": info.session,
        "agent": info.agent,
        "pid": info.steno_pid,
        "agent_pid": info.agent_pid,
        "started_at": round(info.started * 1000),
        "elapsed_s": round(now - info.started, 3),
        "waits_s": None if info.waits_until is None else max(0.0, round(info.waits_until - now, 3)),
        "cwd": info.cwd,
        "recording": info.tape,
        "tape": info.tape,  # its name before 0.1
        "takes_messages": info.steer,
        "name": info.name,
        "prompt": info.prompt,
        **status,
    }


def _query_status(info: RunInfo) -> dict[str, Any]:
    try:
        return send_request(info.socket or "", {"do": "status"}, STATUS_TIMEOUT_SECONDS)
    except StenoError:
        return {}
