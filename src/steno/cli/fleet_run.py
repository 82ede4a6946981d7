"""`steno fleet batch`, `spawn`, `pipe` and `worker`: queue tasks, and run them."""

import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import join
from threading import RLock

import msgspec

from ..config.files import new_run_id
from ..errors import StenoError
from ..fleet.admission import has_budget_left
from ..fleet.board import (
    Board,
    active_workers,
    batch_word,
    fleet_status,
    read_board,
    select_results,
)
from ..fleet.queue import TaskQueue, import_dbos
from ..fleet.rows import BUDGET_REASON, DEPENDENCY_REASON, BatchRow, TaskRow
from ..fleet.spec import TaskSpec
from ..fleet.store import FleetStore, open_fleet
from ..fleet.task_file import (
    MAX_FILE_BYTES,
    read_tasks,
    single_task,
    task_ids,
)
from ..fleet.template import pipe_prompt
from ..fleet.worker import Worker
from ..ledger.protocol import now_ms
from ..ledger.store import ledger_location
from ..runner.run_registry import lost_runs
from ..units import NANO_PER_USD
from ..views.fleet import pause_line, progress_line, render_board
from .commands import EXIT_FAILED, EXIT_INTERRUPTED
from .fleet_options import (
    add_limits,
    add_task_options,
    parse_batch_name,
    parse_lease,
    setting_option,
    task_defaults,
)
from .fleet_query import (
    NO_WORKER,
    as_json,
    print_failures,
    restart_tasks,
    run_output,
    task_json,
)
from .options import CommandParser, number_type
from .run_options import read_prompt
from .terminal import detect_style, is_terminal, print_error, print_json, print_lines, stdin_bytes

DEFAULT_JOBS = max(1, min(8, (os.cpu_count() or 2)))
POSITIVE = number_type("a whole number from 1 to 100000", 1, 100_000, whole=True)
SPAWN_BATCH = "spawn"
BOARD_SECONDS = 0.5
PLAIN_SECONDS = 10.0  # between two lines without a terminal
LIVE_POLL_SECONDS = 0.1


# -- batch ---------------------------------------------------------------------------------------

BATCH_EXAMPLES = """examples:
  steno fleet batch tasks.jsonl --jobs 8
  steno fleet batch tasks.toml --worktree --budget 20 --rate 30/min --retry api --retry timeout
  steno fleet batch tasks.csv --detach --ledger postgresql://db.example/steno
  steno fleet batch tasks.jsonl --agent-limit codex=4 --model-limit opus=2

A line of tasks.jsonl: {"name": "fix-1", "prompt": "fix the failing test in {{vars.file}}",
"vars": {"file": "a.py"}, "depends_on": ["setup"], "max_cost": 2}. Fields: prompt or prompt_file,
name, cwd, or repository and commit, worktree, policy, tags, depends_on, vars, args, retry,
and every other setting of `steno run`. {{tasks.NAME.text}} is the answer of a task in depends_on.

The file is checked first; nothing is queued if it has a mistake. Start the same file again to
continue after Ctrl-C: tasks that have ended, or run elsewhere, are not started again. Exit codes:
0 all have succeeded, 1 one has not, 130 interrupted.
"""


def run_batch(args: list[str]) -> int:
    """Run `steno fleet batch` and return its exit code."""
    parser = CommandParser("fleet batch", "Run the tasks of a file.", BATCH_EXAMPLES)
    parser.add_argument("file", metavar="TASKS", help="a .jsonl, .csv or .toml file; - for stdin")
    parser.add_argument(
        "--name",
        type=parse_batch_name,
        metavar="NAME",
        help="name of the batch (default: the file's)",
    )
    parser.add_argument(
        "--jobs",
        type=POSITIVE,
        default=DEFAULT_JOBS,
        metavar="N",
        help="tasks at once, in the whole fleet (default: %(default)s)",
    )
    parser.add_argument(
        "--detach", action="store_true", help="queue the tasks for workers, and return"
    )
    add_limits(parser)
    add_task_options(parser)
    parser.add_json("print the result of the batch as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_intermixed_args(args)
    options.given = args
    import_dbos()
    tasks, batch = _read_batch(options)
    ids = task_ids(batch.id, tasks)
    with open_fleet(options.ledger) as store:
        batch = _keep_limits(options, batch, store.get_batch(batch.id))
        known = {task.id for task in store.tasks("t.batch = ?", (batch.id,))}
        limits = {
            f"{kind}:{name}": most
            for kind in ("agent", "model")
            for name, most in getattr(options, f"{kind}_limit")
        }
        store.add_batch(batch, list(zip(ids, tasks, strict=True)), limits)
        removed = store.remove_others(batch.id, ids)
        with closing(TaskQueue(store)) as queue:
            queue.open_batch(batch)
            _restart_blocked(store, queue, batch)
            store.mark_ready(batch.id)
            queue.release(batch.id)
        new = sum(id_ not in known for id_ in ids)
        gone = f", {removed} no longer in the file" if removed else ""
        _say(options, f"{batch.name}: {new} new, {len(ids) - new} known before{gone}")
        if options.detach:
            return _finish_detached(options, store, batch)
    return _run_here(options, batch)


def _read_batch(options: argparse.Namespace) -> tuple[list[TaskSpec], BatchRow]:
    path = options.file
    data = stdin_bytes().read() if path == "-" else _read_file(path)
    tasks = read_tasks(path, data, task_defaults(options))
    if options.name is not None:
        source = f"name:{options.name}"
    elif path == "-":
        source = f"content:{hashlib.sha256(data).hexdigest()}"
    else:
        source = os.path.realpath(path)
    rate_count, rate_seconds = options.rate if any(options.rate or ()) else (None, None)
    batch = BatchRow(
        id=hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:12],
        name=options.name or ("stdin" if path == "-" else Path(path).stem),
        source=source,
        created_at=now_ms(),
        jobs=options.jobs,
        rate_count=rate_count,
        rate_seconds=rate_seconds,
        budget_nano=options.budget or None,
    )
    return tasks, batch


def _keep_limits(options: argparse.Namespace, batch: BatchRow, before: BatchRow | None) -> BatchRow:
    """Started again without a rate or budget, a batch keeps those that it has."""
    if before is None:
        return batch
    kept: dict[str, float | int | None] = {}
    if options.rate is None and before.rate_count is not None:
        kept |= {"rate_count": before.rate_count, "rate_seconds": before.rate_seconds}
        _say(options, "--rate as before; --rate off removes it")
    if options.budget is None and before.budget_nano is not None:
        kept["budget_nano"] = before.budget_nano
        usd = before.budget_nano / NANO_PER_USD
        _say(options, f"--budget {usd:g} as before; --budget off removes it")
    return msgspec.structs.replace(batch, created_at=before.created_at, **kept)


def _read_file(path: str) -> bytes:
    file = Path(path)
    if file.is_file() and file.stat().st_size > MAX_FILE_BYTES:
        raise StenoError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MB; split it")
    return file.read_bytes()


def _restart_blocked(store: FleetStore, queue: TaskQueue, batch: BatchRow) -> None:
    """Tasks that the budget, or a task that they need, kept from starting may start now.

    Also those that the batch's budget stopped, if there is more now.
    """
    where = "t.batch = ? AND t.state = 'blocked' AND t.error IN (?, ?)"
    tasks = store.tasks(where, (batch.id, BUDGET_REASON, DEPENDENCY_REASON))
    stopped = store.tasks("t.batch = ? AND t.verdict = 'max_budget'", (batch.id,))
    if stopped and has_budget_left(store, batch):
        tasks += [task for task in stopped if "max_cost" not in store.get_spec(task.id).options]
    if tasks:
        restart_tasks(store, queue, tasks)


def _finish_detached(options: argparse.Namespace, store: FleetStore, batch: BatchRow) -> int:
    if options.form == "json":
        print_json(as_json(read_board(store, batch)))
    if not active_workers(store):
        _say(options, NO_WORKER)
    return 0


def _say(options: argparse.Namespace, text: str) -> None:
    if options.form != "json":
        print_error(text)


# -- running here --------------------------------------------------------------------------------


def _run_here(options: argparse.Namespace, batch: BatchRow) -> int:
    """Work on a batch in this process until it is done."""
    _recover_lost_runs(options.ledger)
    display = BoardDisplay(options.form == "json")
    jobs = options.jobs
    worker = Worker(options.ledger, jobs=jobs, batch=batch.id, log=display.say)
    with _signals(worker, display):
        try:
            worker.start()
            worker.wait(lambda: display.update(worker.store, batch), LIVE_POLL_SECONDS)
            board = read_board(worker.store, batch)
            tasks = worker.store.tasks("t.batch = ? AND t.state <> 'done'", (batch.id,))
            word = batch_word(worker.store, batch)
            if board.is_finished:
                worker.queue.close_batch(batch.id)
        finally:
            worker.close()
    display.finish(board)
    if options.form == "json":
        rows = [task_json(task) for task in tasks]
        result = {**msgspec.to_builtins(board), "not_done": rows}
        print_json(as_json(result))
    elif board.is_finished:
        print_failures(tasks, [word], options.ledger)
    if not board.is_finished:
        _say(options, f"stopped; to continue: steno fleet batch {join(options.given)}")
        return EXIT_INTERRUPTED
    return 0 if board.is_good else EXIT_FAILED


def _recover_lost_runs(ledger: str | None) -> None:
    if lost_runs():
        from .ps import recover_finished_runs

        recover_finished_runs(ledger, 1.0)


@contextmanager
def _signals(worker: Worker, display: "BoardDisplay", drains: bool = False) -> Iterator[None]:
    """SIGINT stops the agents, twice kills them; SIGTERM drains a worker."""

    def on_signal(number: int, frame: object) -> None:
        if drains and number == signal.SIGTERM:
            worker.drain()
            display.say("draining: finishing what runs; Ctrl-C stops it")
            return
        worker.stop()
        display.say("stopping; press Ctrl-C again to kill")

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    old = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class BoardDisplay:
    """The board on a terminal's stderr, redrawn; else a line now and then."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_live = is_terminal(sys.stderr) and not is_quiet
        self._is_quiet = is_quiet
        self._drawn = 0
        self._next = 0.0
        self._last_line = ""
        self._plain_at = 0.0
        self._lock = RLock()  # workers report from several threads

    def say(self, text: str) -> None:
        """Print a line above the board."""
        if self._is_quiet:
            return
        with self._lock:
            self._clear()
            print_error(text)
            self._next = min(self._next, time.monotonic() + BOARD_SECONDS)

    def update(self, store: FleetStore, batch: BatchRow) -> bool:
        """Show the board if it is time; whether the batch is done."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + BOARD_SECONDS
        status = fleet_status(store, [batch])
        board = status.batches[0]
        if self._is_live:
            with self._lock:
                self._draw(
                    board, [pause_line(pause["agent"], pause["until"]) for pause in status.pauses]
                )
        elif not self._is_quiet:
            self._print_line(board, now)
        return board.is_finished

    def _print_line(self, board: Board, now: float) -> None:
        line = progress_line(board)
        if not self._last_line or now >= self._plain_at:
            self._plain_at = now + PLAIN_SECONDS
            if line != self._last_line:
                self._last_line = line
                print_error(line)

    def _draw(self, board: Board, more: list[str]) -> None:
        style = detect_style(sys.stderr)
        lines = [line[: style.columns - 1] for line in (*render_board(style, board), *more)]
        self._clear()
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
        self._drawn = len(lines)

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
            sys.stderr.flush()
            self._drawn = 0

    def finish(self, board: Board) -> None:
        """Leave the last state on the screen."""
        self._clear()
        if not self._is_quiet:
            print_error(progress_line(board))


# -- spawn and pipe ------------------------------------------------------------------------------

SPAWN_EXAMPLES = """examples:
  steno fleet spawn "fix the failing test"                   prints the task's id
  steno fleet spawn --file prompt.md --agent codex --worktree --tag release=2.0
  steno fleet spawn --wait "which test fails?"               run it here, print the answer

A worker runs the task: start one with `steno fleet worker`.
"""


def run_spawn(args: list[str]) -> int:
    """Run `steno fleet spawn` and return its exit code."""
    parser = CommandParser("fleet spawn", "Queue one task.", SPAWN_EXAMPLES)
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="task for the agent")
    parser.add_argument("--file", metavar="PATH", help="read the prompt from a file; - for stdin")
    _add_spawn_options(parser)
    end = args.index("--") if "--" in args else len(args)
    options = parser.parse_intermixed_args(args[:end])
    rest = args[end + 1 :]
    if rest:
        if options.prompt is not None or len(rest) > 1:
            parser.error("expected one PROMPT: put it in quotes")
        options.prompt = rest[0]
    options.args = []
    return _spawn(options, read_prompt(options))


def _add_spawn_options(parser: CommandParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the task")
    parser.add_argument(
        "--wait", action="store_true", help="run it in this process, and print the answer"
    )
    add_task_options(parser)
    parser.add_json("print the task as one JSON object")
    parser.add_ledger(can_import=False)


def _spawn(options: argparse.Namespace, prompt: str) -> int:
    import_dbos()
    defaults = task_defaults(options)
    name = f"spawn-{new_run_id()}" if options.name is None else options.name
    spec = single_task(prompt, name, defaults, setting_option)
    id_ = new_run_id()
    batch = BatchRow(id=SPAWN_BATCH, name=SPAWN_BATCH, created_at=now_ms())
    if options.wait:  # a batch of its own: this process leaves the others to the workers
        batch = msgspec.structs.replace(batch, id=f"{SPAWN_BATCH}-{id_}", name=name)
    with open_fleet(options.ledger) as store:
        store.add_batch(batch, [(id_, spec)], {})
        with closing(TaskQueue(store)) as queue:
            queue.open_batch(batch)
            queue.release(batch.id)
        (task,) = store.get_tasks([id_])
        has_worker = bool(active_workers(store))
    if options.wait:
        return _run_one(options, batch, id_)
    if options.form == "json":
        print_json(as_json(task_json(task)))
    else:
        print_lines([id_])
    if not has_worker:
        _say(options, NO_WORKER)
    return 0


def _run_one(options: argparse.Namespace, batch: BatchRow, id_: str) -> int:
    """Run a spawned task in this process."""
    _recover_lost_runs(options.ledger)
    display = BoardDisplay(True)
    worker = Worker(options.ledger, jobs=1, batch=batch.id)
    with _signals(worker, display):
        try:
            worker.start()
            worker.wait(lambda: bool(worker.store.tasks("t.id = ? AND t.ended_at > 0", (id_,))))
            (task,) = worker.store.get_tasks([id_])
            if task.is_final:
                worker.queue.close_batch(batch.id)
        finally:
            worker.close()
    if not task.is_final:
        print_error(f"stopped; it starts again with a worker: {id_}")
        return EXIT_INTERRUPTED
    ledger = [] if options.ledger is None else ["--ledger", options.ledger]
    form = ["--json"] if options.form == "json" else []
    return run_output([id_, *ledger, *form])


PIPE_EXAMPLES = """examples:
  steno fleet pipe tasks -- "summarise these results in five lines"
  steno fleet pipe 3f9a21c0 77ab01d2 --agent codex --wait -- "which of the two is better?"

The results are put before the prompt, each in a frame that its text cannot leave, and marked as
data. TASK can be a whole batch, or a run in the ledger; only successes are used.
"""


def run_pipe(args: list[str]) -> int:
    """Run `steno fleet pipe` and return its exit code."""
    parser = CommandParser(
        "fleet pipe", "Queue a task with the results of others in its prompt.", PIPE_EXAMPLES
    )
    parser.usage = "steno fleet pipe TASK... [OPTIONS] -- PROMPT"
    parser.add_argument(
        "tasks",
        nargs="+",
        metavar="TASK",
        help="id, name, BATCH/NAME, a whole batch, or the id of a run (its start is enough)",
    )
    _add_spawn_options(parser)
    if "--" not in args and not {"-h", "--help"} & set(args):
        parser.error("put the prompt after --")
    end = args.index("--") if "--" in args else len(args)
    options = parser.parse_intermixed_args(args[:end])
    prompt = " ".join(args[end + 1 :])
    if not prompt.strip():
        parser.error("the prompt after -- is empty")
    with open_fleet(options.ledger) as store:
        results = [result for word in options.tasks for result in select_results(store, word)]
    if not results:
        raise StenoError("none of these tasks has succeeded yet; wait: steno fleet wait TASK")
    return _spawn(options, pipe_prompt(results, prompt))


# -- worker --------------------------------------------------------------------------------------

WORKER_EXAMPLES = """examples:
  steno fleet worker --jobs 4
  steno fleet worker --ledger postgresql://db.example/steno --jobs 16
  steno fleet worker --until-empty        end when nothing is left to do

SIGTERM drains: running tasks are finished, no new ones are started. Ctrl-C stops the agents and
gives their tasks back; a second one kills them. If a worker dies, its agents die with it, and
another worker continues its tasks after --lease.
"""


def run_worker(args: list[str]) -> int:
    """Run `steno fleet worker` and return its exit code."""
    parser = CommandParser("fleet worker", "Run queued tasks until stopped.", WORKER_EXAMPLES)
    parser.add_argument(
        "--jobs",
        type=POSITIVE,
        default=DEFAULT_JOBS,
        metavar="N",
        help="tasks at once on this machine (default: %(default)s)",
    )
    parser.add_argument(
        "--lease",
        type=parse_lease,
        metavar="TIME",
        help="time without contact until a worker counts as dead (default: 30 s; SQLite: 5 s)",
    )
    parser.add_argument(
        "--until-empty", action="store_true", help="end when no task is waiting or running"
    )
    parser.add_json("print each finished task as one line of JSON")
    parser.add_ledger(can_import=False)
    options = parser.parse_args(args)
    import_dbos()
    _recover_lost_runs(options.ledger)
    is_json = options.form == "json"
    display = BoardDisplay(is_json)
    on_finished = _print_task if is_json else lambda task: None
    worker = Worker(
        options.ledger,
        jobs=options.jobs,
        lease=options.lease,
        log=display.say,
        on_finished=on_finished,
    )
    with _signals(worker, display, drains=True):
        try:
            worker.start()
            place = ledger_location(options.ledger)
            display.say(f"worker {worker.id}: {options.jobs} tasks at once, from {place}")
            worker.wait(lambda: options.until_empty and _is_empty(worker), LIVE_POLL_SECONDS)
        finally:
            worker.close()
    return 0


def _print_task(task: TaskRow) -> None:
    print_json(as_json(task_json(task)))


def _is_empty(worker: Worker) -> bool:
    sql = "SELECT 1 FROM fleet_tasks WHERE state IN ('held', 'waiting', 'running') LIMIT 1"
    return not worker.active_count and not worker.store.query(sql)
