"""Lists of runs and sessions, and a short card of a session. All text is cleaned on the way; it never prints."""

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
    verdict_colour,
)
from .layout import PageStyle, SectionRow, headline, render_section
from .sanitize import wrap
from .summary import STATUS_COLOURS
from .table import Cell, Column, render_table

LocalTimeFormatter = Callable[[int | None], str]
MAX_SESSION_RUNS = 8  # runs on the card of a session
GAUGE_COLUMNS = 8  # columns of a session's context
RUN_COLUMNS = (
    Column("id"),
    Column("when", drop_priority=1),
    Column("agent", drop_priority=7),
    Column("verdict"),
    Column("cost", True),
    Column("tokens", True, 3),
    Column("turns", True, 6),
    Column("time", True, 4),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("error", drop_priority=2, can_truncate=True),
)
SESSION_COLUMNS = (
    Column("id"),
    Column("last", drop_priority=1),
    Column("requests", True, 6),
    Column("tokens", True, 4),
    Column("cost", True),
    Column("context", drop_priority=3),
    Column("peak", True, 7),
    Column("project", drop_priority=5, can_truncate=True, keep_end=True),
    Column("title", drop_priority=2, can_truncate=True),
)


def runs_table(
    found: Sequence[RunSummary], total: dict[str, Any], look: PageStyle, when: LocalTimeFormatter
) -> list[str]:
    """One line for each run, and what all of them come to."""
    lines = render_table(look, RUN_COLUMNS, [_run_row(run, when) for run in found])
    return [*lines, "", *_runs_footer(total, total["runs"] - len(found), look)]


def _run_row(run: RunSummary, when: LocalTimeFormatter) -> list[Cell | str]:
    colour = verdict_colour(run.verdict) if run.verdict is not None else "cyan"
    return [
        run.short_id,
        when(run.started_at),
        run.agent or UNKNOWN,
        Cell(run.state, colour),
        ""
        if run.verdict is None and run.cost_nano is None
        else format_money(nano_to_usd(run.cost_nano)),
        "" if run.tokens.total is None else format_compact(run.tokens.total),
        "" if run.turns is None else format_number(run.turns),
        "" if run.duration_ms is None else format_duration(run.duration_ms),
        run.project or "",
        (run.error or "").strip().partition("\n")[0],
    ]


def _runs_footer(total: dict[str, Any], left_off: int, look: PageStyle) -> list[str]:
    cost = total["cost"]
    more = (
        f" and {format_count(cost['unpriced_runs'], 'run')} of unknown cost"
        if cost["unpriced_runs"]
        else ""
    )
    text = f"{format_count(total['runs'], 'run')}: {format_money(cost['usd'])}{more}, {format_number(total['tokens']['total'])} tokens"
    return [*wrap(text, look.columns), *_more_rows_hint(left_off, look)]


def _more_rows_hint(many: int, look: PageStyle) -> list[str]:
    text = f"and {format_number(many)} more that are not shown: --last N shows N of them"
    return [look.paint(line, "dim") for line in wrap(text, look.columns)] if many > 0 else []


def sessions_table(
    found: Sequence[SessionSummary],
    many: int,
    sums: UsageTotals,
    look: PageStyle,
    when: LocalTimeFormatter,
) -> list[str]:
    """One line for each session, and what all of them come to."""
    lines = render_table(look, SESSION_COLUMNS, [_session_row(one, when) for one in found])
    more = f" (+{format_number(sums.unpriced)} unpriced)" if sums.unpriced else ""
    tokens = (
        f"{format_number(sums.tokens.total)} tokens in {format_count(sums.requests, 'request')}"
    )
    lines += [
        "",
        *wrap(
            f"{format_count(many, 'session')}: {format_money(nano_to_usd(sums.cost_nano))}{more}, {tokens}",
            look.columns,
        ),
    ]
    return lines + _more_rows_hint(many - len(found), look)


def _session_row(one: SessionSummary, when: LocalTimeFormatter) -> list[Cell | str]:
    sums, context = one.totals, one.context
    more = f" +{sums.unpriced}" if sums.unpriced and sums.cost_nano is not None else ""
    return [
        one.short_id,
        when(one.last_at),
        format_number(sums.requests),
        format_compact(sums.tokens.total),
        format_money(nano_to_usd(sums.cost_nano)) + more,
        _context_gauge(one) if context.used is not None else Cell(UNKNOWN, "dim"),
        "" if one.context_peak is None else format_compact(one.context_peak),
        one.project or "",
        one.title or "",
    ]


def _context_gauge(one: SessionSummary) -> Cell:
    context = one.context
    text = f"{gauge(context.fraction or 0, GAUGE_COLUMNS)} {context.hp:.0f}% HP"
    return Cell(text, STATUS_COLOURS.get(context.status or "", ""))


# -- one of them -------------------------------------------------------------------------------------------------


def session_card(
    one: SessionSummary, own: Sequence[RunSummary], look: PageStyle, when: LocalTimeFormatter
) -> list[str]:
    """What the ledger itself knows of a session and of its own runs."""
    sums, context = one.totals, one.context
    tokens = sums.tokens
    counters = (
        f"input {format_number(tokens.input)} · cache write {format_number(tokens.cache_write)} · cache read {format_number(tokens.cache_read)} · "
        f"output {format_number(tokens.output)}"
    )
    unpriced = f" · +{format_count(sums.unpriced, 'unpriced request')}" if sums.unpriced else ""
    parts = {
        "agent": " · ".join(
            filter(None, (f"{one.agent} {one.agent_version or ''}".strip(), one.model))
        ),
        "session": one.id,
        "folder": one.project or "",
        "time": f"{when(one.first_at)} to {when(one.last_at)}",
        "work": f"{format_count(one.prompts, 'prompt')} · {format_count(sums.requests, 'request')}",
        "tokens": f"{format_number(tokens.total)} in all · cache hit rate {format_percent(sums.cache_hit_rate)} · {counters}",
        "cost": f"{format_money(nano_to_usd(sums.cost_nano))}{unpriced} · the cache saved {format_money(nano_to_usd(sums.saved_nano))}",
        "context": f"{context.text} · peak {format_number(context.peak)}",
    }
    lines = headline(look, "session", "cyan", one.title or "without a title")
    shown = [
        f"{run.short_id}  {run.state}  {format_money(nano_to_usd(run.cost_nano))}  {when(run.started_at)}"
        for run in own[:MAX_SESSION_RUNS]
    ]
    more = (
        [
            SectionRow(
                f"and {len(own) - MAX_SESSION_RUNS} more: steno runs --session {one.short_id}",
                "dim",
            )
        ]
        if len(own) > MAX_SESSION_RUNS
        else []
    )
    lines += [
        "",
        *(
            line
            for label, text in parts.items()
            if text
            for line in render_section(look, label, [SectionRow(text)])
        ),
    ]
    return lines + render_section(look, "runs", [*map(SectionRow, shown), *more])


def notes_section(found: Sequence[Note], look: PageStyle, when: LocalTimeFormatter) -> list[str]:
    """The notes beside a run or a session."""
    return render_section(
        look, "notes", [SectionRow(f"{when(note.at)}  {note.text}", max_lines=20) for note in found]
    )
