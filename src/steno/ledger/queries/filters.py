"""Which rows a question is about: filters by project, model and agent as conditions in SQL. It never runs the question."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...analysis.usage import base_model_name
from ..store import Store
from .time_range import TimeRange

MAX_VALUES_PER_QUERY = 400  # values in one question: below every limit


class Filters(Struct, frozen=True):
    """What was asked for; None: everything. Names are already those that the ledger has."""

    time_range: TimeRange = TimeRange()
    projects: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None


class WhereClause:
    """Conditions that must all hold, with their values."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> "WhereClause":
        """One more condition, with a `?` for each value."""
        self.conditions.append(condition)
        self.values += values
        return self

    def add_in(self, column: str, wanted: Sequence[str] | None) -> "WhereClause":
        """The column is one of these; none of them can be meant: nothing fits."""
        if wanted is not None:
            marks = ",".join("?" * len(wanted))
            self.add(f"{column} IN ({marks})" if wanted else "1 = 0", *wanted)
        return self

    def add_time_range(self, column: str, span: TimeRange) -> "WhereClause":
        """A time within the span."""
        if span.since is not None:
            self.add(f"{column} >= ?", span.since)
        if span.until is not None:
            self.add(f"{column} < ?", span.until)
        return self

    @property
    def sql(self) -> str:
        """` WHERE ...`, or nothing."""
        return f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


# -- names as people give them -----------------------------------------------------------------------------------


def resolve_filters(
    store: Store, span: TimeRange, project: str | None, model: str | None, agent: str | None
) -> Filters:
    """What is meant by names as people give them; what fits nothing is an empty tuple."""
    return Filters(
        span,
        resolve_projects(store, project),
        resolve_models(store, model),
        resolve_agents(store, agent),
    )


def resolve_projects(store: Store, given: str | None) -> tuple[str, ...] | None:
    """The projects that are meant: by the whole path, a path relative to here, or the name of the last folder."""
    if given is None:
        return None
    known = _distinct_names(store, "project", "sessions", "spend", "runs")
    wanted = {given, given.rstrip("/"), str(Path(given).absolute()), str(Path(given).resolve())}
    exact = tuple(name for name in known if name in wanted)
    return exact or tuple(
        name for name in known if name.rstrip("/").endswith("/" + given.strip("/"))
    )


def resolve_models(store: Store, given: str | None) -> tuple[str, ...] | None:
    """The models that are meant: one by its name, with or without its window, or all that have these letters in it."""
    if given is None:
        return None
    known = _distinct_names(store, "model", "spend", "runs", "sessions")
    return tuple(
        name for name in known if base_model_name(name) == base_model_name(given)
    ) or _match_names(given, known)


def resolve_agents(store: Store, given: str | None) -> tuple[str, ...] | None:
    """The agents that are meant."""
    return (
        None
        if given is None
        else _match_names(given, _distinct_names(store, "agent", "sessions", "runs"))
    )


def _distinct_names(store: Store, column: str, *tables: str) -> list[str]:
    """The names in a column of several tables. A run that failed early has no session, and spent nothing."""
    parts = [f"SELECT DISTINCT {column} FROM {table}" for table in tables]  # names of our own
    return sorted(row[0] for row in store.query(" UNION ".join(parts)) if row[0])


def _match_names(given: str, known: Iterable[str]) -> tuple[str, ...]:
    names = list(known)
    return (
        (given,)
        if given in names
        else tuple(name for name in names if given.lower() in name.lower())
    )
