"""Compare two runs or sessions, figure by figure."""

from typing import Any

from ...analysis.usage import cache_hit_rate, nano_to_usd
from ...report import Tokens
from ..protocol import Store, query_value
from ..results import ComparedFigure, RunSummary, SessionSummary
from . import runs, sessions

FIGURE_KINDS = {
    "verdict": "text",
    "agent": "text",
    "agent_version": "text",
    "model": "text",
    "project": "text",
    "duration_ms": "span",
    "cost_usd": "money",
    "cache_hit_rate": "percent",
}


def compare(
    store: Store, first_prefix: str, second_prefix: str
) -> tuple[list[ComparedFigure], str, str]:
    """Return the known figures of both, and the ids of both."""
    first = runs.get_by_prefix(store, first_prefix)
    second = runs.get_by_prefix(store, second_prefix)
    first_figures = _figures(store, first)
    second_figures = _figures(store, second)
    figures = [
        ComparedFigure(
            name,
            FIGURE_KINDS.get(name, "number"),
            first_figures.get(name),
            second_figures.get(name),
        )
        for name in dict.fromkeys([*first_figures, *second_figures])
    ]
    known = [figure for figure in figures if figure.first is not None or figure.second is not None]
    return known, first.id, second.id


def _figures(store: Store, subject: runs.LedgerId) -> dict[str, Any]:
    if subject.table == "runs":
        return _run_figures(runs.get_run(store, subject.id))
    return _session_figures(store, sessions.get_session(store, subject.id))


def _run_figures(run: RunSummary) -> dict[str, Any]:
    return {
        "verdict": run.state,
        **_identity_figures(run),
        "duration_ms": run.duration_ms,
        "turns": run.turns,
        "requests": run.requests,
        **_token_figures(run.tokens),
        "cost_usd": nano_to_usd(run.cost_nano),
        "context_used": run.context_used,
        "context_peak": run.context_peak,
        "tools": run.tools,
        "tool_errors": run.tool_errors,
        "denials": run.denials,
        "files": run.files,
    }


def _session_figures(store: Store, session: SessionSummary) -> dict[str, Any]:
    ((calls, errors, denied),) = store.query(
        "SELECT count(*), coalesce(sum(CASE WHEN ok = 0 THEN 1 ELSE 0 END), 0), "
        "coalesce(sum(denied), 0) FROM calls WHERE session = ?",
        (session.id,),
    )
    files = query_value(
        store, "SELECT count(DISTINCT path) FROM changes WHERE session = ?", (session.id,)
    )
    duration_ms = None
    if session.first_at is not None and session.last_at is not None:
        duration_ms = session.last_at - session.first_at
    return {
        **_identity_figures(session),
        "duration_ms": duration_ms,
        "turns": session.turns,
        "requests": session.totals.known_requests,
        **_token_figures(session.totals.tokens),
        "cost_usd": nano_to_usd(session.totals.cost_nano),
        "context_used": session.context_used,
        "context_peak": session.context_peak,
        "tools": int(calls),
        "tool_errors": int(errors),
        "denials": int(denied),
        "files": int(files),
    }


def _identity_figures(subject: RunSummary | SessionSummary) -> dict[str, Any]:
    return {
        "agent": subject.agent,
        "agent_version": subject.agent_version,
        "model": subject.model,
        "project": subject.project,
    }


def _token_figures(tokens: Tokens) -> dict[str, Any]:
    names = ("input", "cache_write", "cache_read", "output", "total")
    return {
        **{f"tokens_{name}": getattr(tokens, name) for name in names},
        "cache_hit_rate": cache_hit_rate(tokens),
    }
