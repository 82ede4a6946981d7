"""`steno fleet wait`."""

import math
import sys
import time
from collections import Counter

from ..fleet.board import active_workers, batch_labels, batch_word
from ..fleet.rows import STATES, TaskRow
from ..fleet.store import FleetStore, open_fleet
from ..views.fleet import outcome
from ..views.formatting import clean, format_count, truncate
from .commands import EXIT_FAILED
from .fleet_query import (
    NO_WORKER,
    add_selection,
    print_failures,
    print_tasks,
    require_fleet,
    selected,
)
from .options import CommandParser, duration_type
from .terminal import StepProgress, detect_style, is_terminal, print_error, print_lines

EXIT_TIMEOUT = 124  # as timeout(1)
POLL_SECONDS = 0.25
REPORT_SECONDS = 30.0  # between two lines without a terminal

WAIT_EXAMPLES = """examples:
  steno fleet wait tasks                       wait for a batch
  steno fleet wait 3f9a21c0 --timeout 10m
  steno fleet wait --tag release=2.0 --any     until the first has ended; prints which

Exit codes: 0 all have succeeded, 1 one has failed, 124 time limit reached.
"""


def run_wait(args: list[str]) -> int:
    """Run `steno fleet wait` and return its exit code."""
    parser = CommandParser("fleet wait", "Wait until tasks have ended.", WAIT_EXAMPLES)
    add_selection(parser)
    parser.add_argument("--any", action="store_true", help="wait for the first one only")
    parser.add_argument(
        "--timeout", type=duration_type, metavar="TIME", help="give up after this time: 90, 10m, 2h"
    )
    parser.add_json("print the tasks as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    require_fleet(options.ledger)
    with open_fleet(options.ledger) as store:
        tasks = selected(store, options, parser)
        labels = batch_labels(store, {task.batch for task in tasks})
        batches = filter(None, map(store.get_batch, labels))
        words = [batch_word(store, batch) for batch in batches]
        report = WaitReport(store, is_quiet=options.form == "json")
        ids = [task.id for task in tasks]
        tasks = _wait_for(store, ids, options.any, options.timeout, report)
    ended = [task for task in tasks if task.is_final]
    if options.form == "json":
        print_tasks("json", tasks)
    elif options.any:
        print_lines(
            clean(f"{labels[task.batch]}/{task.name} ({task.id[:12]}): {outcome(task)}")
            for task in ended
        )
    if len(ended) < (1 if options.any else len(tasks)):
        print_error(f"{len(tasks) - len(ended)} of {len(tasks)} tasks have not ended")
        return EXIT_TIMEOUT
    failed = [task for task in ended if task.state != "done"]
    if not options.any:
        print_failures(failed, words, options.ledger)
    return EXIT_FAILED if failed else 0


def _wait_for(
    store: FleetStore,
    ids: list[str],
    only_first: bool,
    timeout: float | None,
    report: "WaitReport",
) -> list[TaskRow]:
    give_up_at = time.monotonic() + (math.inf if timeout is None else timeout)
    with report.steps:
        while True:
            tasks = store.get_tasks(ids)
            ended = sum(task.is_final for task in tasks)
            if ended == len(tasks) or (only_first and ended) or time.monotonic() >= give_up_at:
                return tasks
            report.update(tasks, ended)
            time.sleep(min(POLL_SECONDS, max(0.0, give_up_at - time.monotonic())))


class WaitReport:
    """A progress line on a terminal's stderr; else a line at the start and now and then."""

    def __init__(self, store: FleetStore, is_quiet: bool) -> None:
        self.steps = StepProgress("tasks ended")
        self._store = store
        self._is_quiet = is_quiet
        self._has_warned = False
        self._next = 0.0

    def update(self, tasks: list[TaskRow], ended: int) -> None:
        """Show how far the tasks are; warn once if no worker is active."""
        if self._is_quiet:
            return
        states = Counter(task.state for task in tasks)
        counts = ", ".join(f"{state} {states[state]}" for state in STATES if states[state])
        if is_terminal(sys.stderr):
            room = detect_style(sys.stderr).columns - len(f"steno: {ended} of {len(tasks)}  ")
            self.steps.noun = truncate(f"tasks ended: {counts}", room)
            self.steps.update(ended, len(tasks))
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REPORT_SECONDS
        if not is_terminal(sys.stderr):
            print_error(f"{ended} of {format_count(len(tasks), 'task')} ended: {counts}")
        if not self._has_warned and not active_workers(self._store):
            self._has_warned = True
            self.steps.clear()
            print_error(NO_WORKER)
