"""Lists of runs and sessions, and the summary of one session."""

from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.usage import nano_to_usd
from ..ledger.results import Note, RunSummary, SessionSummary
from ..ledger.totals import UsageTotals
from .formatting import (
    UNKNOWN,
    at_least,
    format_compact,
    format_count,
    format_duration,
    format_hit_rate,
    format_money,
    format_number,
    gauge,
    unknown_runs,
    verdict_colour,
)
from .table import (
    HP_COLOURS,
    Cell,
    Column,
    PageStyle,
    SectionRow,
    headline,
    join_facts,
    render_section,
    render_table,
)

LocalTimeFormatter = Callable[[int | None], str]
MAX_SESSION_RUNS = 8
MAX_NOTE_LINES = 20
GAUGE_COLUMNS = 8
MIN_PROMPT_COLUMNS = 28
RUN_COLUMNS = (
    Column("id"),
    Column("when", drop_priority=1),
    Column("agent", drop_priority=7),
    Column("verdict"),
    Column("cost", align_right=True),
    Column("tokens", align_right=True, drop_priority=4),
    Column("turns", align_right=True, drop_priority=6),
    Column("time", align_right=True, drop_priority=3),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("prompt", drop_priority=1, can_truncate=True, min_columns=MIN_PROMPT_COLUMNS),
    Column("error", drop_priority=2, can_truncate=True, min_columns=MIN_PROMPT_COLUMNS),
)
# With less room the error of a failed run takes the place of its prompt.
NARROW_RUN_COLUMNS = (
    *RUN_COLUMNS[:-2],
    Column("prompt or error", drop_priority=1, can_truncate=True, min_columns=MIN_PROMPT_COLUMNS),
)
WIDE_RUN_COLUMNS = 100
SESSION_COLUMNS = (
    Column("id"),
    Column("last", drop_priority=1),
    Column("requests", align_right=True, drop_priority=6),
    Column("tokens", align_right=True, drop_priority=4),
    Column("cost", align_right=True),
    Column("context", drop_priority=3),
    Column("peak", align_right=True, drop_priority=7),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("title", drop_priority=2, can_truncate=True),
)


def runs_table(
    runs: Sequence[RunSummary],
    total: dict[str, Any],
    style: PageStyle,
    when: LocalTimeFormatter,
    group_attempts: bool = True,
) -> list[str]:
    """One line per run, and the totals. Earlier attempts of a task follow its last one."""
    rows = []
    format_start = _without_common_year(runs, when)
    for attempts in _group_by_task(runs) if group_attempts else [[run] for run in runs]:
        last = attempts[0]
        rows.append(_run_row(last, format_start(last.started_at)))
        rows += [_earlier_attempt_row(run, last) for run in attempts[1:]]
    columns: Sequence[Column] = RUN_COLUMNS
    if style.line_limit is not None and style.line_limit < WIDE_RUN_COLUMNS:
        columns = NARROW_RUN_COLUMNS
        rows = [[*row[:-2], row[-1] if _text(row[-1]) else row[-2]] for row in rows]
    lines = render_table(style, columns, rows)
    cost = total["cost"]
    failed = f" ({format_number(total['failed'])} failed)" if total["failed"] else ""
    text = (
        f"{format_count(total['runs'], 'run')}{failed}: "
        f"{format_money(cost['usd'])}{unknown_runs(cost['unpriced_runs'])}, "
        f"{format_number(total['tokens']['total'])} tokens"
    )
    more = _more_rows_hint(total["runs"] - len(runs), style)
    return [*lines, "", *style.wrap(text), *more]


def _text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _group_by_task(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """The attempts of each task together, where its first one in the list is."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(run.task or run.id, []).append(run)
    return list(groups.values())


def _without_common_year(
    runs: Sequence[RunSummary], when: LocalTimeFormatter
) -> LocalTimeFormatter:
    """The times without their year if it is the same for all."""
    years = {when(run.started_at)[:5] for run in runs if run.started_at is not None}
    return (lambda at: when(at)[5:]) if len(years) == 1 else when


def _run_row(run: RunSummary, start: str) -> list[Cell | str]:
    colour = "cyan" if run.verdict is None else verdict_colour(run.verdict)
    return [
        run.short_id,
        start,
        run.agent or UNKNOWN,
        Cell(run.state, colour),
        cost_text(run),
        "" if run.tokens.total is None else format_compact(run.tokens.total),
        "" if run.turns is None else format_number(run.turns),
        "" if run.duration_ms is None else format_duration(run.duration_ms),
        run.project or "",
        run.title.partition("\n")[0],
        run.reason or "",
    ]


def cost_text(run: RunSummary) -> str:
    """The cost of a run in a list; empty while it is active and nothing is known."""
    return "" if run.verdict is None and run.cost_nano is None else format_money(run.cost.usd)


def _earlier_attempt_row(run: RunSummary, last: RunSummary) -> list[Cell | str]:
    """A row below the last attempt; not marked as a failure if the task succeeded in the end."""
    cells = [
        cell if isinstance(cell, Cell) else Cell(cell)
        for cell in _run_row(run, f"└ attempt {run.attempt or ''}")
    ]
    cells[-2] = Cell("")  # the prompt of the row above
    return [Cell(cell.text, "dim") for cell in cells] if last.verdict == "success" else [*cells]


def _more_rows_hint(hidden: int, style: PageStyle) -> list[str]:
    if hidden <= 0:
        return []
    return [style.paint(f"{format_number(hidden)} more (use --last N)", "dim")]


PRUNED_NOTE = " (including the kept totals of pruned sessions)"


def sessions_table(
    sessions: Sequence[SessionSummary],
    total_count: int,
    totals: UsageTotals,
    style: PageStyle,
    when: LocalTimeFormatter,
    includes_pruned: bool = False,
) -> list[str]:
    """One line per session, and the totals of all `total_count` sessions.

    `includes_pruned`: the totals have pruned sessions too, which are not in `total_count`.
    """
    lines = render_table(style, SESSION_COLUMNS, [_session_row(row, when) for row in sessions])
    unpriced = f" ({format_count(totals.unpriced, 'request')} unpriced)" if totals.unpriced else ""
    cost = at_least(format_money(nano_to_usd(totals.cost_nano)), totals.is_lower_bound)
    tokens = at_least(format_number(totals.tokens.total), totals.is_lower_bound)
    text = (
        f"{format_count(total_count, 'session')}: "
        f"{cost}{unpriced}, {tokens} tokens in {_requests_text(totals)}"
        f"{PRUNED_NOTE if includes_pruned else ''}"
    )
    more = _more_rows_hint(total_count - len(sessions), style)
    return [*lines, "", *style.wrap(text), *more]


def _session_row(session: SessionSummary, when: LocalTimeFormatter) -> list[Cell | str]:
    totals = session.totals
    has_gaps = totals.unpriced and totals.cost_nano is not None
    unpriced = f" +{totals.unpriced}" if has_gaps else ""
    return [
        session.short_id,
        when(session.last_at),
        format_number(totals.known_requests),
        at_least(format_compact(totals.tokens.total), totals.is_lower_bound),
        at_least(format_money(nano_to_usd(totals.cost_nano)), totals.is_lower_bound) + unpriced,
        _context_gauge(session),
        "" if session.context_peak is None else format_compact(session.context_peak),
        session.project or "",
        session.title or "",
    ]


def _context_gauge(session: SessionSummary) -> Cell:
    context = session.context
    if context.used is None:
        return Cell(UNKNOWN, "dim")
    fraction = context.fraction or 0
    text = f"{gauge(fraction, GAUGE_COLUMNS)} {fraction:.0%} used"
    return Cell(text, HP_COLOURS.get(context.status or "", ""))


# -- one session --------------------------------------------------------------------------------


def session_card(
    session: SessionSummary,
    runs: Sequence[RunSummary],
    style: PageStyle,
    when: LocalTimeFormatter,
) -> list[str]:
    """The summary of a session and its runs, from the ledger alone."""
    lines = headline(style, "session", "cyan", session.title or "untitled")
    lines.append("")
    for label, text in _session_facts(session, when).items():
        if text:
            lines += render_section(style, label, [SectionRow(text)])
    rows = [SectionRow(_session_run_text(run, when)) for run in runs[:MAX_SESSION_RUNS]]
    hidden = len(runs) - MAX_SESSION_RUNS
    if hidden > 0:
        command = f"steno runs --session {session.short_id}"
        rows.append(SectionRow(f"{hidden} more (use {command})", "dim"))
    return lines + render_section(style, "runs", rows)


def _session_facts(session: SessionSummary, when: LocalTimeFormatter) -> dict[str, str]:
    totals = session.totals
    tokens = totals.tokens
    agent = f"{session.agent} {session.agent_version or ''}".strip()
    unpriced = f" · {format_count(totals.unpriced, 'request')} unpriced" if totals.unpriced else ""
    work = (
        format_count(session.prompts, "prompt"),
        "turns unknown" if session.turns is None else format_count(session.turns, "turn"),
        _requests_text(totals),
        format_duration(session.duration_ms),
    )
    context = session.context
    peak = f"peak {format_number(context.peak)}"
    if context.source == "upper_bound":
        peak = "upper bound"
    return {
        "agent": join_facts((agent, session.model)),
        "session": session.id,
        "folder": session.project or "",
        "time": f"{when(session.first_at)} to {when(session.last_at)}",
        "work": join_facts(work),
        "tokens": join_facts(
            (
                f"{format_number(tokens.total)} total",
                f"cache hit rate {format_hit_rate(totals.cache_hit_rate)}",
                f"input {format_number(tokens.input)}",
                f"cache write {format_number(tokens.cache_write)}",
                f"cache read {format_number(tokens.cache_read)}",
                f"output {format_number(tokens.output)}",
            )
        ),
        "cost": (
            f"{format_money(nano_to_usd(totals.cost_nano))}{unpriced}"
            f" · saved by cache {format_money(nano_to_usd(totals.saved_nano))}"
        ),
        "context": f"{context.text} · {peak}",
    }


def prompt_facts(session: SessionSummary) -> dict[str, str]:
    """The title and the number of prompts of a session."""
    return {"title": session.title or "", "prompts": format_number(session.prompts)}


def _requests_text(totals: UsageTotals) -> str:
    requests = totals.known_requests
    return "requests unknown" if requests is None else format_count(requests, "request")


def _session_run_text(run: RunSummary, when: LocalTimeFormatter) -> str:
    cost = format_money(nano_to_usd(run.cost_nano))
    return f"{run.short_id}  {run.state}  {cost}  {when(run.started_at)}"


def notes_section(notes: Sequence[Note], style: PageStyle, when: LocalTimeFormatter) -> list[str]:
    """The notes attached to a run or session."""
    rows = [SectionRow(f"{when(note.at)}  {note.text}", max_lines=MAX_NOTE_LINES) for note in notes]
    return render_section(style, "notes", rows)
