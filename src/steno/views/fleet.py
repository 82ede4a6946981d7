"""The board of a fleet: batches, workers and pauses as lines."""

from collections.abc import Sequence
from time import time

from ..fleet.board import Board, FleetStatus
from ..fleet.store import STATES, TaskRow
from .formatting import (
    bar,
    clean,
    format_duration,
    format_epoch,
    format_money,
    format_number,
    single_line,
)
from .table import Column, PageStyle, join_facts, render_table

BAR_COLUMNS = 30
MAX_RUNNING_LINES = 8
SHOWN_STATES = ("done", "running", "waiting", "held", "failed", "blocked", "parked", "cancelled")


def render_status(style: PageStyle, status: FleetStatus) -> list[str]:
    """All batches, the workers, and what is paused."""
    lines: list[str] = []
    for board in status.batches:
        lines += [*render_board(style, board), ""]
    if not status.batches:
        lines += ["No batches yet. Start one: steno fleet batch TASKS.jsonl", ""]
    count = len(status.workers)
    if count:
        hosts = len({worker.host for worker in status.workers})
        jobs = sum(worker.jobs for worker in status.workers)
        lines.append(f"workers    {count} on {hosts} machines, {jobs} tasks at once")
    else:
        lines.append("workers    none; start one: steno fleet worker")
    lines += [pause_line(pause["agent"], pause["until"]) for pause in status.pauses]
    return lines


def pause_line(agent: str, until: int) -> str:
    left = format_duration(max(0.0, until - time() * 1000))
    return f"paused     {clean(agent)}: rate limited until {format_epoch(until // 1000)} ({left})"


def render_board(style: PageStyle, board: Board) -> list[str]:
    """A batch in a few lines."""
    filled = bar(board.finished, board.total, BAR_COLUMNS)
    title = f"{clean(board.name)}  {filled} {board.finished} of {board.total}"
    return [title, f"           {counts_line(board)}", f"           {cost_line(board)}"] + [
        f"           {clean(task.name)} ({task.agent}, "
        f"{format_duration(max(0.0, time() * 1000 - (task.started_at or 0)))})"
        for task in board.running[:MAX_RUNNING_LINES]
    ]


def counts_line(board: Board) -> str:
    """Done 12, running 3, failed 2 (permission 1, timeout 1), ..."""
    facts = []
    for state in SHOWN_STATES:
        number = board.states.get(state, 0)
        if number:
            verdicts = ", ".join(f"{word} {count}" for word, count in board.failures.items())
            detail = f" ({verdicts})" if state == "failed" and verdicts else ""
            facts.append(f"{state} {format_number(number)}{detail}")
    return " · ".join(facts) or "empty"


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
    return f"{clean(board.name)} {finished}: {counts_line(board)}; {cost_line(board)}"


def render_tasks(style: PageStyle, tasks: Sequence[TaskRow]) -> list[str]:
    """A table of tasks."""
    columns = (
        Column("id"),
        Column("name"),
        Column("state"),
        Column("verdict"),
        Column("cost", True),
        Column("run"),
        Column("error"),
    )
    rows = [
        [
            task.id[:12],
            clean(task.name),
            task.state,
            task.verdict or "",
            "" if task.cost_nano is None else format_money(task.cost_nano / 1e9),
            (task.run or "")[:8],
            single_line(task.error or ""),
        ]
        for task in sorted(tasks, key=lambda task: (STATES.index(task.state), task.number))
    ]
    return render_table(style, columns, rows)
