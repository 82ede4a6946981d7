"""Two runs or sessions side by side, figure by figure. It reads their rows and never their recordings."""

from typing import Any

from ...analysis.usage import cache_hit_rate, nano_to_usd
from ...report import Tokens
from ..results import ComparedFigure, RunSummary, SessionSummary
from ..store import Store
from . import runs, sessions

FIGURE_KINDS = {
    "verdict": "text", "agent": "text", "agent_version": "text", "model": "text", "project": "text", "duration_ms": "span",
    "cost_usd": "money", "cache_hit_rate": "percent",
}  # fmt: skip


def compare(store: Store, one: str, two: str) -> tuple[list[ComparedFigure], str, str]:
    """The figures of both, and the ids of both."""
    found = [runs.get_by_prefix(store, prefix) for prefix in (one, two)]
    first, second = (_figures(store, *each) for each in found)
    names = list(dict.fromkeys([*first, *second]))
    lines = [
        ComparedFigure(name, FIGURE_KINDS.get(name, "number"), first.get(name), second.get(name))
        for name in names
    ]
    return (
        [line for line in lines if line.first is not None or line.second is not None],
        found[0][1],
        found[1][1],
    )


def _figures(store: Store, table: str, id_: str) -> dict[str, Any]:
    return (
        _run_figures(runs.get_run(store, id_))
        if table == "runs"
        else _session_figures(store, sessions.get_session(store, id_))
    )


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
    tools = "SELECT count(*), coalesce(sum(CASE WHEN ok = 0 THEN 1 ELSE 0 END), 0), coalesce(sum(denied), 0) FROM calls"
    calls, failed, denied = (
        int(figure) for figure in store.query(f"{tools} WHERE session = ?", (session.id,))[0]
    )
    files = store.query(
        "SELECT count(DISTINCT path) FROM changes WHERE session = ?", (session.id,)
    )[0][0]
    known = session.first_at is not None and session.last_at is not None
    return {
        **_identity_figures(session),
        "duration_ms": (session.last_at or 0) - (session.first_at or 0) if known else None,
        "turns": session.turns,
        "requests": session.totals.requests,
        **_token_figures(session.totals.tokens),
        "cost_usd": nano_to_usd(session.totals.cost_nano),
        "context_used": session.context_used,
        "context_peak": session.context_peak,
        "tools": calls,
        "tool_errors": failed,
        "denials": denied,
        "files": int(files),
    }


def _identity_figures(one: RunSummary | SessionSummary) -> dict[str, Any]:
    return {
        "agent": one.agent,
        "agent_version": one.agent_version,
        "model": one.model,
        "project": one.project,
    }


def _token_figures(tokens: Tokens) -> dict[str, Any]:
    names = ("input", "cache_write", "cache_read", "output", "total")
    return {
        **{f"tokens_{name}": getattr(tokens, name) for name in names},
        "cache_hit_rate": cache_hit_rate(tokens),
    }
