"""What searches, budgets, the course of a context and pruning answer. Values only; it never asks."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from ..meter import context_level, hp_status, nano_to_usd
from .lists import TimeFormatter, utc_datetime, utc_iso

MatchRanges = list[tuple[int, int]]  # where hits stand in a text: from, up to


class SearchHit(Struct):
    """A text that was found: a piece of it around the first hit, and where the hits stand in that piece."""

    at: int | None
    session: str
    run: str | None
    project: str | None
    role: str  # prompt, answer or tool
    snippet: str
    marks: MatchRanges
    short_session_id: str = ""
    source: str | None = None  # of a tool's output: the file it stands in
    tool: str | None = None

    @property
    def time(self) -> datetime | None:
        """When it was said, in UTC."""
        return utc_datetime(self.at)

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The hit as a row."""
        return {
            "at": iso(self.at),
            "session_id": self.session,
            "run_id": self.run,
            "project": self.project,
            "role": self.role,
            "tool": self.tool,
            "snippet": self.snippet,
            "marks": self.marks,
            "source": self.source,
        }


class ContextSample(Struct):
    """How full the window of the main thread was at one request."""

    at: int
    model: str
    used: int
    limit: int
    compacted: bool = False  # it holds far less than the one before

    @property
    def fraction(self) -> float:
        """The part of the window that is in use."""
        return self.used / self.limit

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The point as a row."""
        hp = max(0.0, 100 - self.fraction * 100)
        return {
            "at": iso(self.at),
            "model": self.model,
            "used": self.used,
            "limit": self.limit,
            "fraction": self.fraction,
            "hp": hp,
            "status": hp_status(hp),
            "level": context_level(self.fraction),
            "compacted": self.compacted,
        }


class BudgetStatus(Struct):
    """A limit, what was spent of it in the present period, and where that leads."""

    period: str
    project: str | None  # None: all projects
    limit_nano: int
    spent_nano: int
    unpriced: int
    since: int
    until: int
    elapsed_fraction: float  # the part of the period that is over

    @property
    def exceeded(self) -> bool:
        """More was spent than was meant to be."""
        return self.spent_nano > self.limit_nano

    @property
    def forecast_nano(self) -> int:
        """What it will be at the end of the period, if it goes on like this."""
        return max(self.spent_nano, round(self.spent_nano / self.elapsed_fraction)) if self.elapsed_fraction > 0 else self.spent_nano

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The budget as a row."""
        return {
            "period": self.period,
            "project": self.project,
            "limit_usd": nano_to_usd(self.limit_nano),
            "spent_usd": nano_to_usd(self.spent_nano),
            "left_usd": nano_to_usd(self.limit_nano - self.spent_nano),
            "forecast_usd": nano_to_usd(self.forecast_nano),
            "unpriced_requests": self.unpriced,
            "exceeded": self.exceeded,
            "since": iso(self.since),
            "until": iso(self.until),
        }


class ComparedFigure(Struct):
    """One figure of two runs or sessions, side by side."""

    name: str
    kind: str  # how it is written: text, number, money, span, percent
    first: Any
    second: Any

    @property
    def difference(self) -> Any:
        """The second less the first, where both are numbers."""
        known = isinstance(self.first, int | float) and isinstance(self.second, int | float)
        return self.second - self.first if known and self.kind != "text" else None

    @property
    def ratio(self) -> float | None:
        """The second in parts of the first."""
        return self.second / self.first if self.difference is not None and self.first else None

    def as_json(self) -> dict[str, Any]:
        """The figure as a row."""
        return {"figure": self.name, "a": self.first, "b": self.second, "difference": self.difference, "ratio": self.ratio}
