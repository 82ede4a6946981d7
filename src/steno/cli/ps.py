"""`steno ps`: lists active runs; finds one by an ID prefix for the commands that control it."""

import argparse
from pathlib import Path
from typing import Any

from ..config.files import data_folder
from ..errors import LedgerError, StenoError
from ..ledger.protocol import LOCK_TIMEOUT_SECONDS
from ..ledger.queries import runs
from ..ledger.queries.filters import TimeZone
from ..ledger.store import ledger_exists, ledger_location
from ..runner.run_registry import RunInfo, active_runs, lost_runs, recover_runs
from ..runner.run_status import active_run_states
from ..views.ps import active_runs_table
from .options import CommandParser
from .query_options import format_iso, open_waiting_ledger, write_result
from .sync_options import stop_lost_commands
from .terminal import detect_style, print_error


def require_active_run(prefix: str, ledger: str | None = None) -> RunInfo:
    """The active run with this run, task or session ID prefix; StenoError if there is none."""
    info = select_active_run(prefix)
    if info is None:
        raise StenoError(f"{prefix}: no active run with this ID{_outcome_hint(prefix, ledger)}")
    return info


def select_active_run(prefix: str) -> RunInfo | None:
    """The same; None if there is none, StenoError if the prefix is ambiguous."""
    runs_ = active_runs()
    for name in ("run", "task", "session"):
        matches = [
            info for info in runs_ if prefix and (getattr(info, name) or "").startswith(prefix)
        ]
        exact = [info for info in matches if getattr(info, name) == prefix]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if matches:
            raise runs.ambiguous_prefix_error(prefix, "active runs", [info.run for info in matches])
    return None


def find_recording(name: str, ledger: str | None) -> Path:
    """The recording of an active run, a file, or the recording of a run in the ledger."""
    info = select_active_run(name)
    if info is not None:
        if info.tape is None:
            raise StenoError(f"{info.run}: this run is not recorded, so it has no log")
        return Path(info.tape)
    if Path(name).is_file():
        return Path(name)
    paths = sorted((data_folder() / "tapes").glob(f"*/{name}*.steno")) if name.isalnum() else []
    if len(paths) > 1:
        raise runs.ambiguous_prefix_error(name, "runs", [path.stem for path in paths])
    return paths[0] if paths else _recording_from_ledger(name, ledger)


def _recording_from_ledger(name: str, ledger: str | None) -> Path:
    if ledger_exists(ledger):
        store = open_waiting_ledger(ledger)
        try:
            match = runs.find_by_prefix(store, name)
            is_run = match is not None and match.table == "runs"
            source = runs.get_run(store, match.id).source if match is not None and is_run else None
        finally:
            store.close()
        if source is not None:
            return Path(source)
    raise StenoError(f"{name}: no active run, recorded run or recording found; see: steno runs")


def _outcome_hint(prefix: str, ledger: str | None) -> str:
    """How the run ended according to the ledger, or where to look."""
    others = "; see: steno ps" if active_runs() else ""
    if not ledger_exists(ledger):
        return others
    store = open_waiting_ledger(ledger)
    try:
        match = runs.find_by_prefix(store, prefix)
        if match is None or match[0] != "runs":
            return others
        verdict = runs.get_run(store, match[1]).verdict
        return f"; it ended: {verdict}" if verdict is not None else "; its steno process was killed"
    finally:
        store.close()


def recover_finished_runs(ledger: str | None, lock_timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
    """Import the recordings of runs whose steno process was killed, and report them."""
    lost = lost_runs()
    location = ledger_location(ledger) if lost else None
    if not lost or not (ledger_exists(ledger) or any(run.ledger == location for run in lost)):
        return
    try:
        store = open_waiting_ledger(ledger, lock_timeout=lock_timeout)
        try:
            for text in recover_runs(store):
                print_error(text)
        finally:
            store.close()
    except LedgerError as error:
        print_error(f"killed runs were not added to the ledger: {error}")


def short_ids(ids: list[str]) -> dict[str, str]:
    """A unique prefix for each ID."""
    return runs.unique_prefixes(ids, ids)


EXAMPLES = """examples:
  steno ps
  steno ps --json | jq -r '.rows[] | select(.silence_s > 60) | .run_id'
  watch -n 1 steno ps

An ID prefix is enough for `steno logs`, `steno send` and `steno stop`. A run whose steno process
was killed is imported into the ledger from its recording; `steno runs` lists it.
"""


def run(args: list[str]) -> int:
    """Run `steno ps` and return its exit code."""
    options = _parse_args(args)
    recover_finished_runs(options.ledger)
    stop_lost_commands()
    states = active_run_states()
    shorts = short_ids([state["run_id"] for state in states])
    rows = [_row(state, shorts[state["run_id"]]) for state in states]
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


def _row(state: dict[str, Any], short: str) -> dict[str, Any]:
    started_at = format_iso(state["started_at"], TimeZone())
    return {"run_id": state["run_id"], "short": short, **state, "started_at": started_at}
