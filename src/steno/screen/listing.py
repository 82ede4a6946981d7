"""Lists of runs and sessions, and a short card of a session. All text is cleaned on the way; it never prints."""

from collections.abc import Callable, Sequence
from typing import Any

from ..answer.lists import Note, Run, Session
from ..answer.sums import Sums
from ..meter import dollars
from .bars import gauge
from .clean import wrap
from .figures import COLOURS
from .grid import Cell, Column, grid
from .look import Look
from .page import Row, headline, part
from .words import UNKNOWN, colour_of, compact, money, number, percent, several, span

When = Callable[[int | None], str]
SHOWN = 8  # runs on the card of a session
GAUGE = 8  # columns of a session's context
RUNS = (
    Column("id"),
    Column("when", spare=1),
    Column("agent", spare=7),
    Column("verdict"),
    Column("cost", True),
    Column("tokens", True, 3),
    Column("turns", True, 6),
    Column("time", True, 4),
    Column("project", spare=5, text=True, end=True),
    Column("error", spare=2, text=True),
)
SESSIONS = (
    Column("id"),
    Column("last", spare=1),
    Column("requests", True, 6),
    Column("tokens", True, 4),
    Column("cost", True),
    Column("context", spare=3),
    Column("peak", True, 7),
    Column("project", spare=5, text=True, end=True),
    Column("title", spare=2, text=True),
)


def runs(found: Sequence[Run], total: dict[str, Any], look: Look, when: When) -> list[str]:
    """One line for each run, and what all of them come to."""
    lines = grid(look, RUNS, [_run(run, when) for run in found])
    return [*lines, "", *_sum_of_runs(total, total["runs"] - len(found), look)]


def _run(run: Run, when: When) -> list[Cell | str]:
    colour = colour_of(run.verdict) if run.verdict is not None else "cyan"
    return [
        run.short,
        when(run.started_at),
        run.agent or UNKNOWN,
        Cell(run.state, colour),
        "" if run.verdict is None and run.cost_nano is None else money(dollars(run.cost_nano)),
        "" if run.tokens.total is None else compact(run.tokens.total),
        "" if run.turns is None else number(run.turns),
        "" if run.duration_ms is None else span(run.duration_ms),
        run.project or "",
        (run.error or "").strip().partition("\n")[0],
    ]


def _sum_of_runs(total: dict[str, Any], left_off: int, look: Look) -> list[str]:
    cost = total["cost"]
    more = f" and {several(cost['unpriced_runs'], 'run')} of unknown cost" if cost["unpriced_runs"] else ""
    text = f"{several(total['runs'], 'run')}: {money(cost['usd'])}{more}, {number(total['tokens']['total'])} tokens"
    return [*wrap(text, look.columns), *_hidden(left_off, look)]


def _hidden(many: int, look: Look) -> list[str]:
    text = f"and {number(many)} more that are not shown: --last N shows N of them"
    return [look.paint(line, "dim") for line in wrap(text, look.columns)] if many > 0 else []


def sessions(found: Sequence[Session], many: int, sums: Sums, look: Look, when: When) -> list[str]:
    """One line for each session, and what all of them come to."""
    lines = grid(look, SESSIONS, [_session(one, when) for one in found])
    more = f" (+{number(sums.unpriced)} unpriced)" if sums.unpriced else ""
    tokens = f"{number(sums.tokens.total)} tokens in {several(sums.requests, 'request')}"
    lines += ["", *wrap(f"{several(many, 'session')}: {money(dollars(sums.nano))}{more}, {tokens}", look.columns)]
    return lines + _hidden(many - len(found), look)


def _session(one: Session, when: When) -> list[Cell | str]:
    sums, context = one.sums, one.context
    more = f" +{sums.unpriced}" if sums.unpriced and sums.nano is not None else ""
    return [
        one.short,
        when(one.last_at),
        number(sums.requests),
        compact(sums.tokens.total),
        money(dollars(sums.nano)) + more,
        _gauge(one) if context.used is not None else Cell(UNKNOWN, "dim"),
        "" if one.context_peak is None else compact(one.context_peak),
        one.project or "",
        one.title or "",
    ]


def _gauge(one: Session) -> Cell:
    context = one.context
    text = f"{gauge(context.fraction or 0, GAUGE)} {context.hp:.0f}% HP"
    return Cell(text, COLOURS.get(context.status or "", ""))


# -- one of them -------------------------------------------------------------------------------------------------


def session_card(one: Session, own: Sequence[Run], look: Look, when: When) -> list[str]:
    """What the ledger itself knows of a session and of its own runs."""
    sums, context = one.sums, one.context
    tokens = sums.tokens
    counters = (
        f"input {number(tokens.input)} · cache write {number(tokens.cache_write)} · cache read {number(tokens.cache_read)} · "
        f"output {number(tokens.output)}"
    )
    unpriced = f" · +{several(sums.unpriced, 'unpriced request')}" if sums.unpriced else ""
    parts = {
        "agent": " · ".join(filter(None, (f"{one.agent} {one.agent_version or ''}".strip(), one.model))),
        "session": one.id,
        "folder": one.project or "",
        "time": f"{when(one.first_at)} to {when(one.last_at)}",
        "work": f"{several(one.prompts, 'prompt')} · {several(sums.requests, 'request')}",
        "tokens": f"{number(tokens.total)} in all · cache hit rate {percent(sums.hit_rate)} · {counters}",
        "cost": f"{money(dollars(sums.nano))}{unpriced} · the cache saved {money(dollars(sums.saved_nano))}",
        "context": f"{context.text} · peak {number(context.peak)}",
    }
    lines = headline(look, "session", "cyan", one.title or "without a title")
    shown = [f"{run.short}  {run.state}  {money(dollars(run.cost_nano))}  {when(run.started_at)}" for run in own[:SHOWN]]
    more = [Row(f"and {len(own) - SHOWN} more: steno runs --session {one.short}", "dim")] if len(own) > SHOWN else []
    lines += ["", *(line for label, text in parts.items() if text for line in part(look, label, [Row(text)]))]
    return lines + part(look, "runs", [*map(Row, shown), *more])


def notes(found: Sequence[Note], look: Look, when: When) -> list[str]:
    """The notes beside a run or a session."""
    return part(look, "notes", [Row(f"{when(note.at)}  {note.text}", most=20) for note in found])
