"""The pages about many runs: overview, runs, sessions, search, tools, compare.

Each function runs in a thread with a read-only ledger and returns the values of its template. All
figures come from the queries of the commands with the same names.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import StenoError
from ..export.charts import meter
from ..export.usage_html import MEASURES, STACKS, SpendChart
from ..ledger.protocol import Store
from ..ledger.queries import budget, compare, limits, runs, search, sessions, usage
from ..ledger.queries.filters import (
    Filters,
    TimeRange,
    TimeZone,
    current_period,
    empty_reason,
)
from ..ledger.results import BudgetStatus, RunSummary, SearchHit
from ..ledger.totals import UsageRow, UsageTotals
from ..report import VERDICT_MEANINGS
from ..team.approvals import open_requests
from ..views.compare import LESS_IS_BETTER, format_difference, format_figure
from ..views.formatting import UNKNOWN, verdict_colour
from ..views.limits import format_span
from .url_state import (
    NAME_FILTERS,
    ROWS_PER_PAGE,
    TIME_SPANS,
    VERDICT_CHOICES,
    UnknownIdError,
    UrlError,
    UrlState,
    check_id,
)

FAILED_RUNS_SHOWN = 6
MEAN_ATTEMPTS = 4  # of a failed task; more only make the list shorter
PROJECTS_SHOWN = 8
VERDICTS_SHOWN = 8
LOW_LIMIT = 0.2  # of a usage limit is left
SEARCH_ROWS = 50
DENIED_RULES_SHOWN = 20
RUN_SORTS = tuple(runs.RUN_RANKINGS)
SESSION_SORTS = tuple(sessions.SESSION_RANKINGS)
FIELDS_WITHOUT_TOOLS = ("models", "hosts", "branches")  # tool calls are not stored by these
Values = dict[str, Any]


class Request(Struct):
    """What a page depends on besides the ledger."""

    state: UrlState
    zone: TimeZone
    now: int
    choices: Mapping[str, list[str]]
    active: Sequence[Mapping[str, Any]] = ()

    def filters(self) -> Filters:
        return self.state.filters(self.zone, self.now, self.choices)


def list_values(request: Request, path: str, table: str) -> Values:
    """What the filter bar of every list needs."""
    return {
        "state": request.state,
        "choices": request.choices,
        "name_filters": (*NAME_FILTERS, "tag"),
        "verdict_choices": VERDICT_CHOICES,
        "spans": TIME_SPANS,
        "path": path,
        "table": table,
    }


# -- overview --------------------------------------------------------------------------------------


def overview(store: Store, request: Request) -> Values:
    filters = request.filters()
    chart = SpendChart(store, request.zone, filters, request.now)
    report = usage.usage_report(store, chart.unit, request.zone, filters)
    where = runs.runs_where(filters, [], False, None)
    verdicts = runs.count_verdicts(store, where)
    failed = _failed_tasks(store, filters)
    projects = usage.group_spend(store, "project", request.zone, filters)
    by = request.state.values.get("by", STACKS[0])
    show = request.state.values.get("show", MEASURES[0])
    if by not in STACKS or show not in MEASURES:
        raise UrlError("by: expected model or agent; show: expected cost or tokens")
    today = replace(filters, time_range=_today(request))
    return {
        **list_values(request, "/", "runs"),
        "usage": report,
        "today": _sum(usage.group_spend(store, "agent", request.zone, today)),
        "verdicts": _verdict_rows(verdicts),
        "run_count": sum(verdicts.values()),
        "failed": failed,
        "projects": _project_rows(projects),
        "failed_count": report.wasted.runs,
        "wasted_usd": report.wasted.as_json()["usd"],
        "chart": chart.draw(by, show),
        "by": by,
        "show": show,
        "stacks": STACKS,
        "measures": MEASURES,
        "budgets": [
            budget_row(one) for one in budget.list_budgets(store, request.zone, request.now)
        ],
        "limits": [limit_tile(one, request.now) for one in limits.list_limits(store, request.now)],
        "requests": open_requests(store),
        "empty": None if report.rows or verdicts else empty_reason(store, "runs"),
    }


def _failed_tasks(store: Store, filters: Filters) -> list[RunSummary]:
    """The newest failed runs, of several attempts the last one."""
    where = runs.runs_where(filters, [], True, None)
    found = runs.list_runs(store, where, FAILED_RUNS_SHOWN * MEAN_ATTEMPTS)
    tasks: dict[str, RunSummary] = {}
    for run in found:
        tasks.setdefault(run.task or run.id, run)
    return [*tasks.values()][:FAILED_RUNS_SHOWN]


def _today(request: Request) -> TimeRange:
    return current_period(request.zone, request.now, "day")


def _sum(rows: Sequence[UsageRow]) -> UsageTotals:
    total = UsageTotals()
    for row in rows:
        total = total.plus(row.totals)
    return total


def _verdict_rows(verdicts: Mapping[str, int]) -> list[Values]:
    """The number of runs of each verdict, with its share and its meaning; rare ones together."""
    total = max(1, sum(verdicts.values()))
    shown = dict([*verdicts.items()][:VERDICTS_SHOWN])
    rows: list[Values] = [
        {
            "name": name,
            "count": count,
            "bar": meter(count / total, f"{name}: {count} of {total}", verdict_kind(name)),
            "meaning": VERDICT_MEANINGS.get(name, ""),
        }
        for name, count in shown.items()
    ]
    if len(verdicts) > len(shown):
        others = [name for name in verdicts if name not in shown]
        count = sum(verdicts[name] for name in others)
        bar = meter(count / total, f"others: {count} of {total}")
        rows.append({"name": "", "count": count, "bar": bar, "meaning": ", ".join(others)})
    return rows


def _project_rows(rows: Sequence[UsageRow]) -> list[Values]:
    """The projects that cost most, the others together, and what belongs to no known project."""
    costs = [(row.key, row.totals.cost_nano) for row in rows if row.totals.cost_nano]
    known = sorted(((key, cost) for key, cost in costs if key), key=lambda row: -row[1])
    parts = [(key, key, cost) for key, cost in known[:PROJECTS_SHOWN]]
    others = sum(cost for _, cost in known[PROJECTS_SHOWN:])
    unknown = sum(cost for key, cost in costs if not key)
    parts += [("", label, cost) for label, cost in (("others", others), (UNKNOWN, unknown)) if cost]
    total = sum(cost for _, cost in costs)
    return [
        {
            "path": path,
            "label": label,
            "nano": cost,
            "bar": meter(cost / total, "part of the cost"),
        }
        for path, label, cost in parts
    ]


def verdict_kind(verdict: str | None) -> str:
    """The class of a verdict: ok, warn, bad or running."""
    if verdict is None or verdict == "running":
        return "running"
    return {"green": "ok", "yellow": "warn"}.get(verdict_colour(verdict), "bad")


LIMIT_NAMES = {"five_hour": "5 h limit", "seven_day": "7 d limit"}


def limit_tile(limit: limits.LimitStatus, now: int) -> Values:
    """How much of a usage limit is left, when it resets, and whether it will last until then."""
    name = LIMIT_NAMES.get(limit.window, limit.window.replace("_", " "))
    tile: Values = {"label": f"{name} · {limit.agent}", "left": "–", "note": "", "kind": ""}
    if limit.has_reset(now):
        return {**tile, "note": "has reset; no news since"}
    if limit.resets_at is not None:
        tile["note"] = f"resets in {format_span(limit.resets_at - now)}"
    if limit.used_up_at is not None:
        tile["note"] += f" · used up in {format_span(max(0, limit.used_up_at - now))}"
        tile["kind"] = "warn"
    if limit.utilization is not None:
        left = max(0.0, 1 - limit.utilization)
        tile["left"] = f"{left:.0%} left"
        tile["kind"] = tile["kind"] or ("warn" if left < LOW_LIMIT else "")
        label = f"{limit.utilization:.0%} used"
        tile["meter"] = meter(limit.utilization, label, tile["kind"] or "ok")
    if limit.status == "rejected" or (limit.utilization or 0) >= 1:
        tile |= {"left": "used up", "kind": "bad"}
    return tile


def budget_row(status: BudgetStatus) -> Values:
    used = status.spent_nano / status.limit_nano
    forecast = status.forecast_nano / status.limit_nano
    kind = "ok"
    if forecast > 1:
        kind = "warn"
    if status.exceeded:
        kind = "bad"
    label = f"{used:.0%} used, forecast {forecast:.0%}"
    return {"status": status, "kind": kind, "meter": meter(used, label, kind, forecast)}


# -- lists -----------------------------------------------------------------------------------------


def runs_page(store: Store, request: Request) -> Values:
    state = request.state
    verdict = state.values.get("verdict")
    session = state.values.get("session")
    verdicts = [] if verdict in (None, "failed") else [str(verdict)]
    where = runs.runs_where(request.filters(), verdicts, verdict == "failed", session)
    total = runs.sum_runs(store, where)
    rows = runs.list_runs(store, where, ROWS_PER_PAGE, state.sort or None, _offset(state))
    return {
        **list_values(request, "/runs", "runs"),
        "rows": rows,
        "total": total,
        "sorts": RUN_SORTS,
        **_paging(state, total["runs"]),
        "empty": None if rows else empty_reason(store, "runs"),
    }


def sessions_page(store: Store, request: Request) -> Values:
    state = request.state
    where = sessions.sessions_where(request.filters())
    count, totals = sessions.sum_sessions(store, where)
    rows = sessions.list_sessions(store, where, ROWS_PER_PAGE, state.sort or None, _offset(state))
    return {
        **list_values(request, "/sessions", "sessions"),
        "rows": rows,
        "count": count,
        "totals": totals,
        "includes_pruned": sessions.sum_includes_pruned(store, where),
        "sorts": SESSION_SORTS,
        **_paging(state, count),
        "empty": None if rows else empty_reason(store, "sessions"),
    }


def _offset(state: UrlState) -> int:
    return (state.page - 1) * ROWS_PER_PAGE


def _paging(state: UrlState, count: int) -> Values:
    last = max(1, -(-count // ROWS_PER_PAGE))
    return {
        "last_page": last,
        "previous_url": state.url(page=state.page - 1) if state.page > 1 else None,
        "next_url": state.url(page=state.page + 1) if state.page < last else None,
    }


def search_page(store: Store, request: Request) -> Values:
    text = request.state.values.get("q", "")
    values: Values = {**list_values(request, "/search", "texts"), "query": text, "rows": []}
    if not text:
        return values
    try:
        query = search.parse_query(text)
    except StenoError as error:
        raise UrlError(str(error)) from None
    filters = replace(request.filters(), models=None)  # texts are not stored by model
    hits, total = search.search_texts(store, query, filters, None, SEARCH_ROWS)
    return {
        **values,
        "rows": [{"hit": hit, "parts": _highlighted(hit)} for hit in hits],
        "total": total,
        "empty": None if hits else empty_reason(store, "texts"),
    }


def _highlighted(hit: SearchHit) -> list[tuple[str, bool]]:
    """The snippet in parts, each with whether it matches."""
    parts = []
    done = 0
    for start, end in hit.marks:
        parts += [(hit.snippet[done:start], False), (hit.snippet[start:end], True)]
        done = end
    return [part for part in chain(parts, [(hit.snippet[done:], False)]) if part[0]]


def tools_page(store: Store, request: Request) -> Values:
    stored = dict.fromkeys(FIELDS_WITHOUT_TOOLS)
    filters = replace(request.filters(), tags=(), **stored)
    rows, total = usage.tool_sums(store, filters)
    most = max((row.calls for row in rows), default=1)
    return {
        **list_values(request, "/tools", "tools"),
        "name_filters": ("agent", "project"),
        "rows": [(row, meter(row.calls / most, f"{row.calls} calls")) for row in rows],
        "total": total,
        "rules": usage.denied_rules(store, filters, DENIED_RULES_SHOWN),
        "empty": None if rows else empty_reason(store, "tool_use"),
    }


def compare_page(store: Store, ids: Sequence[str]) -> Values:
    if len(ids) != 2:
        raise UrlError("choose two runs to compare: mark them in the list of runs")
    first_id, second_id = map(check_id, ids)
    try:
        figures, first, second = compare.compare(store, first_id, second_id)
    except StenoError as error:
        raise UnknownIdError(str(error)) from None
    rows = [
        {
            "name": figure.name.removesuffix("_usd").removesuffix("_ms").replace("_", " "),
            "first": format_figure(figure.first, figure.kind),
            "second": format_figure(figure.second, figure.kind),
            "difference": format_difference(figure),
            "ratio": figure.ratio,
            "kind": _difference_kind(figure.name, figure.difference),
            "is_verdict": figure.name == "verdict",
        }
        for figure in figures
    ]
    return {"rows": rows, "subjects": [_compared(store, id_) for id_ in (first, second)]}


def _compared(store: Store, id_: str) -> Values:
    """The address and the title of a run or session."""
    table = runs.get_by_prefix(store, id_).table
    if table == "runs":
        run = runs.get_run(store, id_)
        title: str | None = run.title
    else:
        title = sessions.get_session(store, id_).title
    return {"id": id_, "path": f"/{table}/{id_}", "title": title}


def _difference_kind(name: str, difference: Any) -> str:
    if name not in LESS_IS_BETTER or not difference:
        return ""
    return "ok" if difference < 0 else "bad"
