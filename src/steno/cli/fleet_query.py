"""`steno fleet status`, `collect`, `output`, `cancel`, `retry` and `prune`."""

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from shlex import join
from typing import Any

import msgspec

from ..errors import StenoError
from ..fleet.board import (
    FleetStatus,
    batch_labels,
    blocked_dependants,
    find_batches,
    fleet_status,
    select_tasks,
)
from ..fleet.rows import RETRYABLE_STATES, BatchRow, TaskRow
from ..fleet.spec import RetryRequest
from ..fleet.store import FleetStore, fleet_exists, open_fleet
from ..ledger.protocol import chunks, now_ms
from ..ledger.store import check_named_ledger
from ..units import NANO_PER_USD
from ..views.fleet import failure_lines, outcome, render_status, render_tasks
from ..views.formatting import format_count
from .commands import EXIT_FAILED
from .options import CommandParser
from .terminal import detect_style, print_error, print_json, print_lines, print_text

NO_WORKER = "no worker is active; start one: steno fleet worker"
TIME_FIELDS = ("created_at", "started_at", "ended_at", "seen_at", "until")  # in milliseconds


# -- selection -----------------------------------------------------------------------------------


def add_selection(parser: CommandParser) -> None:
    """TASK... and --tag: words name tasks, tags filter them."""
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="id of a task (its start is enough), its name, BATCH/NAME, or a whole batch",
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="K=V",
        help="only tasks with this label: of those named, else of all; K alone: any value "
        "(repeatable)",
    )


def selected(
    store: FleetStore,
    options: argparse.Namespace,
    parser: CommandParser,
    *,
    is_exact: bool = False,
) -> list[TaskRow]:
    """The chosen tasks. Wrong use if none was named.

    `is_exact`: for commands that change tasks; a name must not match those of several batches.
    """
    if not options.tasks and not options.tag:
        parser.error("name a task or batch, or give --tag K=V")
    tasks = select_tasks(store, options.tasks, options.tag, is_exact=is_exact)
    if not tasks:
        which = "none of these tasks has" if options.tasks else "no task with"
        raise StenoError(f"{which} the label {', '.join(options.tag)}")
    return tasks


def require_fleet(ledger: str | None) -> None:
    if not fleet_exists(ledger):
        check_named_ledger(ledger)
    if not fleet_exists(ledger):
        raise StenoError("no tasks yet; start some: steno fleet batch TASKS.jsonl")


def as_json(value: Any) -> bytes:
    """A value for --json, with times as text."""
    return msgspec.json.encode(_with_times(msgspec.to_builtins(value)))


def _with_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_times(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _format_time(item) if name in TIME_FIELDS else _with_times(item)
        for name, item in value.items()
    }


def _format_time(at: int | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000).astimezone().isoformat(timespec="milliseconds")


def task_json(task: TaskRow, **more: Any) -> dict[str, Any]:
    """A task for --json."""
    return {
        "id": task.id,
        "batch": task.batch,
        "name": task.name,
        "agent": task.agent,
        "model": task.model,
        "state": task.state,
        "verdict": task.verdict,
        "error": task.error,
        "reason": task.reason,
        "run_id": task.run,
        "session_id": task.session,
        "cwd": task.cwd,
        "host": _machine(task.host),
        "worker": task.worker,
        "takeovers": task.takeovers,
        "cost_usd": None if task.cost_nano is None else task.cost_nano / NANO_PER_USD,
        "tokens": task.tokens,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        **more,
    }


def _machine(host: str | None) -> str | None:
    """The machine of "MACHINE PID_NAMESPACE", as a task keeps it."""
    return host and (host.rpartition(" ")[0] or host)


def print_failures(tasks: Sequence[TaskRow], words: Sequence[str], ledger: str | None) -> None:
    """The failed tasks by reason, and the commands that show them and start them again."""
    for line in failure_lines(tasks):
        print_error(line)
    if any(task.is_failed for task in tasks):
        where = [*words, *([] if ledger is None else ["--ledger", ledger])]
        print_error(
            f"see: {join(['steno', 'fleet', 'collect', *where, '--failed'])}; "
            f"again: {join(['steno', 'fleet', 'retry', *where, '--failed'])}"
        )


def print_tasks(form: str | None, tasks: list[TaskRow]) -> None:
    if form == "json":
        rows = [task_json(task) for task in tasks]
        print_json(as_json({"rows": rows, "total": len(rows)}))
    else:
        print_lines(render_tasks(detect_style(), tasks))


# -- status --------------------------------------------------------------------------------------

STATUS_EXAMPLES = """examples:
  steno fleet status                 batches that are not finished, else the newest
  steno fleet status tasks --tasks   the tasks of one batch
  steno fleet status --all --json

State of a worker: active, draining, or lost (not responding: its lease has expired).
"""


def run_status(args: list[str]) -> int:
    """Run `steno fleet status` and return its exit code."""
    parser = CommandParser("fleet status", "Show batches, workers and pauses.", STATUS_EXAMPLES)
    parser.add_argument(
        "batch", nargs="?", metavar="BATCH", help="only this batch: name, or id (its start)"
    )
    parser.add_argument("--all", action="store_true", help="also batches that are finished")
    parser.add_argument("--tasks", action="store_true", help="list the tasks of BATCH")
    parser.add_json()
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    if options.tasks and options.batch is None:
        parser.error("--tasks needs BATCH")
    status = FleetStatus(batches=[], workers=[], pauses=[])
    if not fleet_exists(options.ledger):
        check_named_ledger(options.ledger)
    if options.batch is not None or fleet_exists(options.ledger):
        require_fleet(options.ledger)
        with open_fleet(options.ledger) as store:
            if options.tasks:
                print_tasks(options.form, select_tasks(store, [options.batch]))
                return 0
            status = fleet_status(store, _shown_batches(store, options))
    if options.form == "json":
        print_json(as_json(status))
    else:
        print_lines(render_status(detect_style(), status))
    return 0


def _shown_batches(store: FleetStore, options: argparse.Namespace) -> list[BatchRow]:
    if options.batch is not None:
        found = find_batches(store, options.batch)
        if not found:
            raise StenoError(f"no batch {options.batch!r}; see: steno fleet status --all")
        return found
    batches = store.batches()
    if options.all:
        return batches
    sql = (
        "SELECT id FROM fleet_batches WHERE EXISTS (SELECT 1 FROM fleet_tasks "
        "WHERE batch = fleet_batches.id AND state IN ('held', 'waiting', 'running'))"
    )
    unfinished = {row[0] for row in store.query(sql)}
    return [batch for batch in batches if batch.id in unfinished] or batches[:1]


# -- results -------------------------------------------------------------------------------------

COLLECT_EXAMPLES = """examples:
  steno fleet collect tasks > results.jsonl
  steno fleet collect tasks --failed | jq -r '.name + ": " + .error'
  steno fleet collect --tag release=2.0 --output results/    one file per answer

Each line is one task: id, name, state, verdict, text, run_id, cost_usd, ... Tasks that have not
ended are left out. With --output, only tasks that have succeeded get a file: FOLDER/NAME.txt, or
FOLDER/BATCH/NAME.txt if TASK and --tag select several batches.
"""


def run_collect(args: list[str]) -> int:
    """Run `steno fleet collect` and return its exit code."""
    parser = CommandParser(
        "fleet collect", "Print the results of tasks as JSON lines.", COLLECT_EXAMPLES
    )
    add_selection(parser)
    parser.add_argument(
        "--failed", action="store_true", help="only failed tasks, not those that a person stopped"
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="write each answer to a file, and print no JSON"
    )
    parser.add_json("print JSON lines (default)")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    if options.output is not None and options.form:
        parser.error("--output writes files and --json prints lines: use one of them")
    if options.output is not None and options.failed:
        parser.error("--output: failed tasks have no answer; leave out --failed, or --output")
    require_fleet(options.ledger)
    with open_fleet(options.ledger) as store:
        tasks = selected(store, options, parser)
        if options.output is not None:
            _write_answers(store, tasks, options.output)
        else:
            _print_results(store, tasks, options.failed)
    return 0


def _print_results(store: FleetStore, tasks: list[TaskRow], only_failed: bool) -> None:
    from ..codec.redact import redact, redact_value  # lazy: the other commands need none of it

    shown = [task for task in tasks if (task.is_failed if only_failed else task.is_final)]
    for part in chunks(shown):
        ids = [task.id for task in part]
        specs = store.get_specs(ids)
        texts = store.result_texts(ids)
        for task in part:
            spec = specs[task.id]
            text = texts.get(task.id, "")
            more = {"prompt": redact(spec.prompt), "tags": redact_value(spec.tags), "text": text}
            print_json(as_json(task_json(task, **more)))
    unfinished = sum(not task.is_final for task in tasks)
    if unfinished:
        print_error(f"{format_count(unfinished, 'task')} not finished")


def _write_answers(store: FleetStore, tasks: list[TaskRow], folder: str) -> None:
    done = [task for task in tasks if task.state == "done"]
    folders = _batch_folders(store, tasks, Path(folder))
    written: set[Path] = set()
    for task in reversed(done):  # of tasks with the same name, the newest one has it alone
        path = folders[task.batch] / f"{task.name}.txt"
        if path in written:
            path = path.with_name(f"{task.name}-{task.id[:8]}.txt")
        written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(store.result_text(task.id), "utf-8")
    states = Counter(task.state for task in tasks if task.is_final and task.state != "done")
    facts = [f"{number} {state}" for state, number in states.items()]
    if unfinished := sum(not task.is_final for task in tasks):
        facts.insert(0, f"{format_count(unfinished, 'task')} not finished")
    others = f"; {', '.join(facts)}" if facts else ""
    print_error(f"{format_count(len(done), 'answer')} written to {folder.rstrip('/')}/{others}")


def _batch_folders(store: FleetStore, tasks: list[TaskRow], folder: Path) -> dict[str, Path]:
    """Where the answers of each batch go: a folder of its own if there are several."""
    from ..workspace.safe_path import is_safe_name

    labels = batch_labels(store, {task.batch for task in tasks})
    if len(labels) == 1:
        return dict.fromkeys(labels, folder)
    return {
        batch: folder / (label if is_safe_name(label) and "/" not in label else batch)
        for batch, label in labels.items()
    }


OUTPUT_EXAMPLES = """examples:
  steno fleet output 3f9a21c0
  steno fleet output tasks/summary
"""


def run_output(args: list[str]) -> int:
    """Run `steno fleet output` and return its exit code."""
    parser = CommandParser("fleet output", "Print the answer of a task.", OUTPUT_EXAMPLES)
    parser.add_argument("task", metavar="TASK", help="id (its start is enough), name or BATCH/NAME")
    parser.add_json("print the task and its answer as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    require_fleet(options.ledger)
    with open_fleet(options.ledger) as store:
        tasks = select_tasks(store, [options.task])
        if len(tasks) > 1:
            raise StenoError(f"{options.task}: {len(tasks)} tasks; see: steno fleet collect")
        text = store.result_text(tasks[0].id)
    task = tasks[0]
    if options.form == "json":
        print_json(as_json(task_json(task, text=text)))
        return 0
    if not task.is_final:
        raise StenoError(f"{options.task}: {task.state}; wait for it: steno fleet wait {task.id}")
    print_text(text)
    if task.state != "done":
        print_error(f"{task.name}: {outcome(task)}")
    return 0 if task.state == "done" else EXIT_FAILED


# -- cancel and retry ----------------------------------------------------------------------------

CANCEL_EXAMPLES = """examples:
  steno fleet cancel 3f9a21c0
  steno fleet cancel --tag release=2.0

Running agents are stopped by their workers within seconds; what they did so far is in the ledger.
"""


def run_cancel(args: list[str]) -> int:
    """Run `steno fleet cancel` and return its exit code."""
    parser = CommandParser("fleet cancel", "Cancel tasks that have not ended.", CANCEL_EXAMPLES)
    add_selection(parser)
    parser.add_json("print the tasks as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    require_fleet(options.ledger)
    from ..fleet.queue import TaskQueue

    with open_fleet(options.ledger) as store:
        chosen = selected(store, options, parser, is_exact=True)
        tasks = [task for task in chosen if not task.is_final]
        ids = [task.id for task in tasks]
        with closing(TaskQueue(store)) as queue:  # first: without DBOS, nothing is changed
            store.cancel(ids)
            for batch in {task.batch for task in tasks}:
                store.mark_ready(batch)
            # Those that run are stopped by their worker, which then ends the workflow.
            queue.cancel([task.workflow for task in tasks if task.state == "waiting"])
        _print_changed(options.form, store.get_tasks(ids), "cancelled")
    return 0


RETRY_EXAMPLES = """examples:
  steno fleet retry tasks --failed    all tasks of a batch that did not succeed
  steno fleet retry 3f9a21c0
  steno fleet retry --tag release=2.0 --failed
  steno fleet retry tasks --verdict permission --allow Write --allow 'Bash(make test)'
  steno fleet retry tasks/colour --answer "the blue one"

Starts tasks again that failed or were blocked, cancelled or parked. Tasks that have succeeded are
left alone. The prompt says how the last run ended: which calls were denied, what it asked, or
what went wrong. After a denial, a run without a call or a change is no success. A worker runs the
tasks: steno fleet worker, or the same `steno fleet batch` again.
"""


def run_retry(args: list[str]) -> int:
    """Run `steno fleet retry` and return its exit code."""
    parser = CommandParser("fleet retry", "Start tasks again that failed.", RETRY_EXAMPLES)
    add_selection(parser)
    parser.add_argument("--failed", action="store_true", help="not those that a person stopped")
    parser.add_argument(
        "--allow",
        action="append",
        metavar="TOOL",
        help="permit this tool from now on, as the option of `steno run` (repeatable)",
    )
    parser.add_argument("--answer", metavar="TEXT", help="the answer to what the last run asked")
    parser.add_argument(
        "--verdict",
        action="append",
        default=[],
        metavar="VERDICT",
        help="only tasks with this verdict, and those that they have blocked (repeatable)",
    )
    parser.add_json("print the tasks as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    require_fleet(options.ledger)
    from ..fleet.queue import TaskQueue

    with open_fleet(options.ledger) as store:
        tasks = _to_retry(store, selected(store, options, parser, is_exact=True), options.verdict)
        tasks = [task for task in tasks if task.is_failed or not options.failed]
        request = _retry_request(options, tasks)
        with closing(TaskQueue(store)) as queue:
            tasks = restart_tasks(store, queue, tasks, request)
        _print_changed(options.form, tasks, "queued again")
    return 0


def _retry_request(options: argparse.Namespace, tasks: list[TaskRow]) -> RetryRequest:
    """--allow and --answer. StenoError if a task could not use them."""
    answer = options.answer
    if answer is not None and not answer.strip():
        raise StenoError("--answer: empty; give the text that the agent gets")
    given = {"--allow": options.allow, "--answer": answer}
    for option in [option for option, value in given.items() if value]:
        for task in tasks:
            _check_retry_option(option, task)
    return RetryRequest(allow=tuple(options.allow or ()), answer=answer)


def _check_retry_option(option: str, task: TaskRow) -> None:
    from ..agents import REPLAY_AGENT_NAME, get_agent  # lazy: the other commands need no agents
    from ..agents.base import option_support

    if task.agent == REPLAY_AGENT_NAME:
        raise StenoError(f"{option}: {task.name} is a replay, which repeats its recording")
    agent = get_agent(task.agent)
    if option == "--allow" and agent is not None and option_support(agent, "allow") == "no":
        raise StenoError(f"{option}: not supported by {task.agent}, the agent of {task.name}")


def _to_retry(store: FleetStore, tasks: list[TaskRow], verdicts: list[str]) -> list[TaskRow]:
    """The tasks that can start again; with verdicts: those, and what they have blocked."""
    tasks = [task for task in tasks if task.state in RETRYABLE_STATES]
    if not verdicts:
        return tasks
    tasks = [task for task in tasks if task.verdict in verdicts]
    return [*tasks, *blocked_dependants(store, tasks)]


def restart_tasks(
    store: FleetStore, queue: Any, tasks: list[TaskRow], request: RetryRequest | None = None
) -> list[TaskRow]:
    """Queue ended tasks again, as far as what they depend on allows."""
    restarted = store.requeue([task.id for task in tasks], request)
    for id_ in {task.batch for task in tasks}:
        batch = store.get_batch(id_)
        if batch is not None:
            queue.open_batch(batch)
        store.mark_ready(id_)
        queue.release(id_)
    return restarted


PRUNE_EXAMPLES = """examples:
  steno fleet prune --older-than 30d          show how many tasks would be deleted
  steno fleet prune --older-than 30d --yes    delete them
  steno fleet prune tasks --yes               the finished tasks of one batch

Deletes finished tasks with their prompts and answers from the queue. Their runs stay in the
ledger. The same task file starts them again.
"""


def run_prune(args: list[str]) -> int:
    """Run `steno fleet prune` and return its exit code."""
    parser = CommandParser(
        "fleet prune", "Delete finished tasks and their results.", PRUNE_EXAMPLES
    )
    add_selection(parser)
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        help="only tasks that ended this long ago: 12h, 30d, 6m (months)",
    )
    parser.add_argument("--yes", action="store_true", help="delete; without it, only show")
    parser.add_json("print the tasks as one JSON object")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    if not (options.tasks or options.tag or options.older_than):
        parser.error("name a task or batch, or give --tag K=V or --older-than SPAN")
    require_fleet(options.ledger)
    before = _ended_before(options.older_than)
    with open_fleet(options.ledger) as store:
        is_selected = options.tasks or options.tag
        if is_selected:
            tasks = selected(store, options, parser, is_exact=True)
        else:
            tasks = store.tasks("true")
        tasks = store.deletable(tasks, before)
        if options.yes and tasks:
            _delete_tasks(store, tasks)
    if options.form == "json":
        rows = [task_json(task) for task in tasks]
        print_json(as_json({"rows": rows, "total": len(rows), "dry_run": not options.yes}))
    elif options.yes:
        print_lines([f"{_count(tasks)} deleted"])
    else:
        count = _count(tasks, "finished ")
        print_lines([f"Dry run: would delete {count}; run again with --yes."])
    return 0


def _ended_before(span: str | None) -> int:
    """The time of --older-than; without it, now."""
    now = now_ms()
    if span is None:
        return now
    from ..ledger.queries.filters import TimeZone, time_before

    return time_before(TimeZone(), now, span, "--older-than")


def _delete_tasks(store: FleetStore, tasks: list[TaskRow]) -> None:
    from ..fleet.queue import TaskQueue

    with closing(TaskQueue(store)) as queue:
        queue.forget(tasks, store.delete([task.id for task in tasks]))


def _print_changed(form: str | None, tasks: list[TaskRow], word: str) -> None:
    if form == "json":
        print_tasks("json", tasks)
    else:
        print_lines([f"{_count(tasks)} {word}"])


def _count(tasks: list[TaskRow], adjective: str = "") -> str:
    return format_count(len(tasks), f"{adjective}task")
