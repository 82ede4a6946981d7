"""Lists of runs and sessions, and the summary of one session."""

from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.usage import nano_to_usd
from ..ledger.results import Note, RunSummary, SessionSummary
from ..ledger.totals import UsageTotals
from .formatting import (
    UNKNOWN,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_number,
    format_percent,
    gauge,
    unknown_runs,
    verdict_colour,
    wrap,
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
RUN_COLUMNS = (
    Column("id"),
    Column("when", drop_priority=1),
    Column("agent", drop_priority=7),
    Column("verdict"),
    Column("cost", align_right=True),
    Column("tokens", align_right=True, drop_priority=3),
    Column("turns", align_right=True, drop_priority=6),
    Column("time", align_right=True, drop_priority=4),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("error", drop_priority=2, can_truncate=True, min_columns=16),
)
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
    runs: Sequence[RunSummary], total: dict[str, Any], style: PageStyle, when: LocalTimeFormatter
) -> list[str]:
    """One line per run, and the totals."""
    lines = render_table(style, RUN_COLUMNS, [_run_row(run, when) for run in runs])
    cost = total["cost"]
    text = (
        f"{format_count(total['runs'], 'run')}: "
        f"{format_money(cost['usd'])}{unknown_runs(cost['unpriced_runs'])}, "
        f"{format_number(total['tokens']['total'])} tokens"
    )
    more = _more_rows_hint(total["runs"] - len(runs), style)
    return [*lines, "", *wrap(text, style.columns), *more]


def _run_row(run: RunSummary, when: LocalTimeFormatter) -> list[Cell | str]:
    is_running = run.verdict is None
    colour = "cyan" if run.verdict is None else verdict_colour(run.verdict)
    has_cost = run.cost_nano is not None or not is_running
    return [
        run.short_id,
        when(run.started_at),
        run.agent or UNKNOWN,
        Cell(run.state, colour),
        format_money(nano_to_usd(run.cost_nano)) if has_cost else "",
        "" if run.tokens.total is None else format_compact(run.tokens.total),
        "" if run.turns is None else format_number(run.turns),
        "" if run.duration_ms is None else format_duration(run.duration_ms),
        run.project or "",
        (run.error or "").strip().partition("\n")[0],
    ]


def _more_rows_hint(hidden: int, style: PageStyle) -> list[str]:
    if hidden <= 0:
        return []
    return [style.paint(f"{format_number(hidden)} more (use --last N)", "dim")]


def sessions_table(
    sessions: Sequence[SessionSummary],
    total_count: int,
    totals: UsageTotals,
    style: PageStyle,
    when: LocalTimeFormatter,
) -> list[str]:
    """One line per session, and the totals of all `total_count` sessions."""
    lines = render_table(style, SESSION_COLUMNS, [_session_row(row, when) for row in sessions])
    unpriced = f" ({format_count(totals.unpriced, 'request')} unpriced)" if totals.unpriced else ""
    text = (
        f"{format_count(total_count, 'session')}: "
        f"{format_money(nano_to_usd(totals.cost_nano))}{unpriced}, "
        f"{format_number(totals.tokens.total)} tokens in {_requests_text(totals)}"
    )
    more = _more_rows_hint(total_count - len(sessions), style)
    return [*lines, "", *wrap(text, style.columns), *more]


def _session_row(session: SessionSummary, when: LocalTimeFormatter) -> list[Cell | str]:
    totals = session.totals
    has_gaps = totals.unpriced and totals.cost_nano is not None
    unpriced = f" +{totals.unpriced}" if has_gaps else ""
    return [
        session.short_id,
        when(session.last_at),
        format_number(totals.known_requests),
        format_compact(totals.tokens.total),
        format_money(nano_to_usd(totals.cost_nano)) + unpriced,
        _context_gauge(session),
        "" if session.context_peak is None else format_compact(session.context_peak),
        session.project or "",
        session.title or "",
    ]


def _context_gauge(session: SessionSummary) -> Cell:
    context = session.context
    if context.used is None:
        return Cell(UNKNOWN, "dim")
    text = f"{gauge(context.fraction or 0, GAUGE_COLUMNS)} {context.hp:.0f}% HP"
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
                f"cache hit rate {format_percent(totals.cache_hit_rate)}",
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
