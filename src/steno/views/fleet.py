"""The board of a fleet: batches, workers and pauses as lines."""

from collections import Counter
from collections.abc import Sequence
from time import time

from ..fleet.board import SHORT_ID_CHARS, Board, FleetStatus, RunningTask
from ..fleet.rows import LOST, STATES, TaskRow, WorkerRow
from .formatting import (
    NO_BREAK_SPACE,
    clean,
    format_count,
    format_duration,
    format_epoch,
    format_money,
    format_number,
    gauge,
    single_line,
    truncate,
    width,
)
from .table import (
    Cell,
    Column,
    PageStyle,
    SectionRow,
    TableRow,
    join_facts,
    render_section,
    render_table,
)

GAUGE_COLUMNS = 30
MIN_NAME_COLUMNS = 12
MAX_RUNNING_LINES = 8
MAX_REASONS = 20  # groups of failed tasks
MAX_NAMES = 8  # of the tasks in a group
SHOWN_STATES = ("done", "running", "waiting", "held", "failed", "cancelled")
STATE_COLOURS = {"done": "green", "failed": "red", "parked": "red", "blocked": "yellow"}
NO_BATCHES = "No batches yet; start one: steno fleet batch TASKS.jsonl"


def render_status(style: PageStyle, status: FleetStatus) -> list[str]:
    """All batches, the workers, and what is paused."""
    if not status.batches and not status.workers:
        return [NO_BATCHES]
    lines = [] if status.batches else [NO_BATCHES, ""]
    names = Counter(board.name for board in status.batches)
    for board in status.batches:
        title, *others = render_board(style, board)
        lines.append(style.paint(title, "bold"))
        if names[board.name] > 1:
            facts = join_facts([f"id {board.id[:SHORT_ID_CHARS]}", clean(board.file or "")])
            lines += render_section(style, "", [SectionRow(facts)])
        lines += [*others, ""]
    is_bad = any(worker.state == LOST for worker in status.workers) or not status.workers
    row = SectionRow(workers_line(status.workers), "yellow" if is_bad else "")
    lines += render_section(style, "workers", [row])
    lines += [pause_line(pause["agent"], pause["until"]) for pause in status.pauses]
    return lines


def workers_line(workers: Sequence[WorkerRow]) -> str:
    """2 on 1 machine, 8 tasks at once · 1 draining · 1 not responding."""
    states = Counter(worker.state for worker in workers)
    alive = [worker for worker in workers if worker.state != LOST]
    hosts = format_count(len({worker.host for worker in alive}), "machine")
    jobs = sum(worker.jobs for worker in alive if worker.state == "active")
    at_once = f", {format_count(jobs, 'task')} at once" if jobs else ""
    facts = [f"{len(alive)} on {hosts}{at_once}"] if alive else []
    facts += [
        f"{states[state]} {label}"
        for state, label in (("draining", "draining"), (LOST, "not responding"))
        if states[state]
    ]
    if not states["active"]:
        facts.append("none is active; start one: steno fleet worker")
    return join_facts(facts)


def pause_line(agent: str, until: int) -> str:
    left = format_duration(max(0.0, until - time() * 1000))
    return f"paused     {clean(agent)}: rate limited until {format_epoch(until // 1000)} ({left})"


def render_board(style: PageStyle, board: Board) -> list[str]:
    """A batch in a few lines, without colours, and without the last column of a terminal."""
    plain = PageStyle(style.columns - 1)
    rows = [SectionRow(text, hanging_indent=0) for text in (counts_line(board), cost_line(board))]
    shown = board.running[:MAX_RUNNING_LINES]
    rows += [SectionRow(_running_line(task), max_lines=1) for task in shown]
    more = board.states.get("running", 0) - len(shown)
    if more > 0:
        rows.append(SectionRow(f"and {more} more"))
    return [_title(plain, board), *render_section(plain, "", rows)]


def _title(style: PageStyle, board: Board) -> str:
    """The count first: a narrow terminal cuts the name."""
    count = f"{format_number(board.finished)} of {format_number(board.total)}"
    room = style.columns - width(count) - MIN_NAME_COLUMNS - 4
    filled = gauge(board.finished / max(1, board.total), max(4, min(GAUGE_COLUMNS, room)))
    return truncate(f"{count}  {filled}  {single_line(board.name)}", style.columns)


def _running_line(task: RunningTask) -> str:
    lasted = format_duration(max(0.0, time() * 1000 - (task.started_at or 0)))
    remark = ", worker not responding" if task.worker_state == LOST else ""
    return f"{single_line(task.name)} ({clean(task.agent)}, {lasted}{remark})"


def counts_line(board: Board) -> str:
    """Done 12, running 3, failed 3 (permission 1, timeout 1, blocked 1), ..."""
    facts = []
    for state in SHOWN_STATES:
        number = board.failed if state == "failed" else board.states.get(state, 0)
        if number:
            words = ", ".join(f"{word} {count}" for word, count in board.failure_words.items())
            detail = f" ({words})" if state == "failed" else ""
            facts.append(f"{state} {format_number(number)}{detail}")
    return join_facts(facts) or "empty"


def cost_line(board: Board) -> str:
    cost = "cost unknown" if board.cost_usd is None else f"{format_money(board.cost_usd)} so far"
    forecast = None
    if board.forecast_usd is not None and not board.is_finished:
        forecast = f"forecast {format_money(board.forecast_usd)}"
    budget = None if board.budget_usd is None else f"budget {format_money(board.budget_usd)}"
    eta = None
    if not board.is_finished:
        left = "unknown" if board.eta_s is None else format_duration(board.eta_s * 1000)
        eta = f"time left {left}"
    return join_facts([cost, forecast, budget, eta])


def progress_line(board: Board) -> str:
    """One line without a terminal."""
    finished = f"{board.finished}/{board.total}"
    line = f"{clean(board.name)} {finished}: {counts_line(board)}; {cost_line(board)}"
    return line.replace(NO_BREAK_SPACE, " ")


def outcome(task: TaskRow) -> str:
    """The state of a task and its reason: failed: API Error ..., cancelled."""
    reason = task.reason or task.verdict
    return f"{task.state}: {reason}" if reason else task.state


def failure_lines(tasks: Sequence[TaskRow]) -> list[str]:
    """The tasks without a success by reason, the most frequent first; those cancelled at the end.

    Each line has the number of tasks, the reason and the names.
    """
    groups: dict[tuple[str, str], list[TaskRow]] = {}
    for task in tasks:
        if task.is_final and task.state != "done":
            word = (task.verdict if task.state == "failed" else None) or task.state
            groups.setdefault((word, task.reason or ""), []).append(task)
    ordered = sorted(groups.items(), key=_failure_rank)
    lines = [_failure_line(*reason, group) for reason, group in ordered[:MAX_REASONS]]
    left = sum(len(group) for _, group in ordered[MAX_REASONS:])
    return [*lines, f"{format_count(left, 'more task')}"] if left else lines


def _failure_rank(group: tuple[tuple[str, str], list[TaskRow]]) -> tuple[bool, int, int]:
    tasks = group[1]
    return not tasks[0].is_failed, -len(tasks), tasks[0].number


def _failure_line(word: str, reason: str, tasks: Sequence[TaskRow]) -> str:
    names = [task.name for task in tasks[:MAX_NAMES]]
    more = f" and {len(tasks) - MAX_NAMES} more" if len(tasks) > MAX_NAMES else ""
    kind = "failed task" if tasks[0].is_failed else "task"
    text = f"{word}: {single_line(reason)}" if reason else word
    return clean(f"{format_count(len(tasks), kind)}, {text}: {', '.join(names)}{more}")


def render_tasks(style: PageStyle, tasks: Sequence[TaskRow]) -> list[str]:
    """A table of tasks."""
    columns = (
        Column("id"),
        Column("name", can_truncate=True, min_columns=10),
        Column("state"),
        Column("verdict", drop_priority=1),
        Column("cost", True, drop_priority=2),
        Column("run", drop_priority=3),
        Column("error", can_truncate=True, min_columns=16),
    )
    rows: list[TableRow] = [
        [
            task.id[:12],
            clean(task.name),
            Cell(task.state, STATE_COLOURS.get(task.state, "")),
            task.verdict or "",
            "" if task.cost_nano is None else format_money(task.cost_nano / 1e9),
            (task.run or "")[:8],
            single_line(task.reason or ""),
        ]
        for task in sorted(tasks, key=lambda task: (STATES.index(task.state), task.number))
    ]
    return render_table(style, columns, rows)
