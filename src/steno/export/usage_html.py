"""Usage as charts and tables in one HTML file, and the chart that the page of `steno serve` shows.

All figures come from the queries of `steno usage`.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from .. import __version__
from ..analysis.usage import nano_to_usd
from ..ledger.protocol import Store
from ..ledger.queries import runs, usage
from ..ledger.queries.filters import Filters, TimeZone, period_name
from ..ledger.totals import UsageRow, UsageTotals
from ..units import DAY_MS
from ..views.formatting import clean_lines, format_cents, format_compact, format_number
from .charts import Series, meter, stacked_bars
from .html import style_sheet, template_environment

MAX_DAYS = 92  # more are shown by week, and more than MAX_WEEKS by month
MAX_WEEKS = 104
MAX_ROWS = 20  # of each table
MEASURES = ("cost", "tokens")
STACKS = ("model", "agent")

PartsByPeriod = dict[str, dict[str, float]]  # by model or agent, then by day, week or month


def chart_unit(store: Store, filters: Filters, now: int) -> str:
    """Days, or weeks or months where days would be too many."""
    first = filters.time_range.since or usage.first_hour_ms(store) or now
    days = (now - first) / DAY_MS
    if days <= MAX_DAYS:
        return "day"
    return "week" if days <= MAX_WEEKS * 7 else "month"


class SpendChart:
    """Draws cost or tokens per day, week or month, stacked by model or agent."""

    def __init__(self, store: Store, zone: TimeZone, filters: Filters, now: int) -> None:
        self._store = store
        self._zone = zone
        self._filters = filters
        self._now = now
        self.unit = chart_unit(store, filters, now)

    def draw(self, by: str, show: str) -> Markup | None:
        """The chart; None without usage."""
        parts = self._by_model(show) if by == "model" else self._by_agent(show)
        known = [key for values in parts.values() for key in values]
        if not known:
            return None
        keys = self._keys(min(known))
        series = [
            Series(clean_lines(name), [values.get(key, 0.0) for key in keys])
            for name, values in parts.items()
        ]
        format_value = format_axis_money if show == "cost" else format_axis_tokens
        labels = [_period_label(key, self.unit) for key in keys]
        return stacked_bars(labels, series, format_value, f"{show} per {self.unit} by {by}")

    def _by_model(self, show: str) -> PartsByPeriod:
        parts: PartsByPeriod = {}
        for row in usage.group_spend(self._store, self.unit, self._zone, self._filters):
            for part in row.models:
                if row.key is not None:
                    values = parts.setdefault(part.key or "unknown", {})
                    values[row.key] = _measure(part.totals, show)
        return parts

    def _by_agent(self, show: str) -> PartsByPeriod:
        parts: PartsByPeriod = {}
        for part in usage.group_spend(self._store, "agent", self._zone, self._filters):
            filters = replace(self._filters, agents=(part.key or "",))
            rows = usage.group_spend(self._store, self.unit, self._zone, filters)
            values = {row.key: _measure(row.totals, show) for row in rows if row.key is not None}
            parts[part.key or "unknown"] = values
        return parts

    def _keys(self, first: str) -> list[str]:
        """Every day, week or month of the range in order, also those without usage."""
        since = self._filters.time_range.since
        until = self._filters.time_range.until
        last = self._now if until is None else min(until - 1, self._now)
        end = self._zone.to_local(last).date()
        start = _period_start(first, self.unit)
        if since is not None:
            start = self._zone.to_local(since).date()
        days = (start + timedelta(days=offset) for offset in range((end - start).days + 1))
        names = (period_name(day, self.unit) for day in days)
        return list(dict.fromkeys(name for name in names if name is not None))


def _measure(totals: UsageTotals, show: str) -> float:
    if show == "tokens":
        return float(totals.tokens.total or 0)
    return float(nano_to_usd(totals.cost_nano) or 0)


def format_axis_money(value: float) -> str:
    return f"${value:,.2f}"


def format_axis_tokens(value: float) -> str:
    return format_compact(round(value))


def _period_start(key: str, unit: str) -> date:
    if unit == "week":
        year, _, week = key.partition("-W")
        return date.fromisocalendar(int(year), int(week), 1)
    return date.fromisoformat(key if unit == "day" else f"{key}-01")


def _period_label(key: str, unit: str) -> str:
    if unit == "day":
        return f"{date.fromisoformat(key):%b %-d}"
    return key if unit == "week" else f"{date.fromisoformat(key + '-01'):%b %Y}"


# -- the report ------------------------------------------------------------------------------------


def usage_html(store: Store, zone: TimeZone, filters: Filters, now: int) -> str:
    """The usage in the time range as one HTML file: nothing is loaded, no script is needed."""
    environment = template_environment()
    environment.finalize = lambda value: "–" if value is None else value
    environment.filters.update(
        nano=lambda nano: format_cents(nano_to_usd(nano)),
        cents=format_cents,
        compact=lambda number: None if number is None else format_compact(number),
        number=format_number,
    )
    chart = SpendChart(store, zone, filters, now)
    report = usage.usage_report(store, chart.unit, zone, filters)
    groups = {
        name: _group_rows(usage.group_spend(store, name, zone, filters))
        for name in ("model", "agent", "project")
    }
    values: dict[str, Any] = {
        "report": report,
        "cost_chart": chart.draw("model", "cost"),
        "token_chart": chart.draw("agent", "tokens"),
        "groups": groups,
        "verdicts": runs.count_verdicts(store, runs.runs_where(filters, [], False, None)),
        "wasted_usd": report.wasted.as_json()["usd"],
        "since": _format_day(zone, filters.time_range.since),
        "until": _format_day(zone, filters.time_range.until),
        "made_at": f"{zone.to_local(now):%Y-%m-%d %H:%M}",
        "zone": zone.name,
        "style": Markup(style_sheet("colours", "charts")),  # noqa: S704  # our own file
        "version": __version__,
        "unit": chart.unit,
    }
    return environment.get_template("usage.html").render(values)


def _group_rows(rows: Sequence[UsageRow]) -> list[tuple[UsageRow, Markup]]:
    """The first rows, each with a bar for its part of the highest cost."""
    top = max((row.totals.cost_nano or 0 for row in rows), default=0) or 1
    return [(row, meter((row.totals.cost_nano or 0) / top, "cost")) for row in rows[:MAX_ROWS]]


def _format_day(zone: TimeZone, at: int | None) -> str | None:
    return None if at is None else f"{zone.to_local(at):%Y-%m-%d}"
