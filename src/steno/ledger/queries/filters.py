"""Filters by time, project, model and agent, and the SQL conditions for them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ...analysis.usage import base_model_name
from ..protocol import Store, placeholders, query_column
from .time_range import TimeRange


class Filters(Struct, frozen=True):
    """What to select, with names as stored in the ledger. None: no filter; (): no match."""

    time_range: TimeRange = TimeRange()
    projects: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None


class WhereClause:
    """SQL conditions joined by AND, with their values."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.values: list[Any] = []

    def copy(self) -> "WhereClause":
        return WhereClause().add_all(self)

    def add(self, condition: str, *values: Any) -> "WhereClause":
        """Add a condition with a `?` for each value."""
        self.conditions.append(condition)
        self.values += values
        return self

    def add_all(self, other: "WhereClause") -> "WhereClause":
        self.conditions += other.conditions
        self.values += other.values
        return self

    def add_in(self, column: str, choices: Sequence[str] | None) -> "WhereClause":
        """Require one of the choices; None: any value, empty: no match."""
        if choices is not None:
            condition = f"{column} IN ({placeholders(len(choices))})" if choices else "1 = 0"
            self.add(condition, *choices)
        return self

    def add_names(self, filters: Filters, prefix: str = "") -> "WhereClause":
        """Add the filters by project, model and agent."""
        return (
            self.add_in(f"{prefix}project", filters.projects)
            .add_in(f"{prefix}model", filters.models)
            .add_in(f"{prefix}agent", filters.agents)
        )

    def add_time_range(self, column: str, time_range: TimeRange) -> "WhereClause":
        if time_range.since is not None:
            self.add(f"{column} >= ?", time_range.since)
        if time_range.until is not None:
            self.add(f"{column} < ?", time_range.until)
        return self

    def add_active_in(self, time_range: TimeRange) -> "WhereClause":
        """Require a session that was active at some time in the range."""
        if time_range.since is not None:
            self.add("last_at >= ?", time_range.since)
        if time_range.until is not None:
            self.add("first_at < ?", time_range.until)
        return self

    @property
    def sql(self) -> str:
        """` WHERE ...`, or an empty string."""
        return f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


# -- names as users type them --------------------------------------------------------------------


def resolve_filters(
    store: Store, time_range: TimeRange, project: str | None, model: str | None, agent: str | None
) -> Filters:
    """Resolve names to those in the ledger; a name without a match becomes an empty tuple."""
    return Filters(
        time_range,
        resolve_projects(store, project),
        resolve_models(store, model),
        resolve_agents(store, agent),
    )


def resolve_projects(store: Store, name: str | None) -> tuple[str, ...] | None:
    """Resolve a path, absolute or relative to the current folder, or the end of a path."""
    if name is None:
        return None
    known = _distinct_names(store, "project", "sessions", "spend", "runs")
    candidates = {name, name.rstrip("/"), str(Path(name).absolute()), str(Path(name).resolve())}
    exact = tuple(project for project in known if project in candidates)
    suffix = "/" + name.strip("/")
    return exact or tuple(project for project in known if project.rstrip("/").endswith(suffix))


def resolve_models(store: Store, name: str | None) -> tuple[str, ...] | None:
    """Resolve a model's name, with or without its context window, or a part of names."""
    if name is None:
        return None
    known = _distinct_names(store, "model", "spend", "runs", "sessions")
    base = base_model_name(name)
    exact = tuple(model for model in known if base_model_name(model) == base)
    return exact or _match_names(name, known)


def resolve_agents(store: Store, name: str | None) -> tuple[str, ...] | None:
    if name is None:
        return None
    return _match_names(name, _distinct_names(store, "agent", "sessions", "runs"))


def _distinct_names(store: Store, column: str, *tables: str) -> list[str]:
    # Several tables: a run that failed early has no session and no spend.
    sql = " UNION ".join(f"SELECT DISTINCT {column} FROM {table}" for table in tables)
    return sorted(name for name in query_column(store, sql) if name)


def _match_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    names = list(known)
    if name in names:
        return (name,)
    return tuple(other for other in names if name.lower() in other.lower())


# -- empty results -------------------------------------------------------------------------------

EmptyReason = Literal["no_match", "sessions_only", "pruned", "pruned_totals_kept", "empty"]


def empty_reason(store: Store, table: str) -> EmptyReason:
    """Return why a query of a table has no rows.

    `no_match`: the filters match none; `sessions_only`: sessions, but no runs; `pruned`: details
    were pruned, with or without their totals; `empty`: nothing was imported yet.
    """
    if has_rows(store, table):
        return "no_match"
    if table == "runs" and has_rows(store, "sessions"):
        return "sessions_only"
    if has_rows(store, "pruned"):
        return "pruned_totals_kept" if has_rows(store, "spend") else "pruned"
    return "empty"


def has_rows(store: Store, table: str) -> bool:
    return bool(store.query(f"SELECT 1 FROM {table} LIMIT 1"))
