"""Reduce a run's totals to its own part, where the agent counts over the whole session.

The totals at the end of the run before it are known from the ledger, if it has that run.
"""

from operator import attrgetter
from typing import NamedTuple

from msgspec import structs
from msgspec.structs import replace

from ..analysis.usage import (
    EARLIER_RUNS_BOUNDS,
    EARLIER_RUNS_LOWER_BOUND,
    cache_hit_rate,
    nano_to_usd,
    sum_tokens,
)
from ..event import ModelUsage
from ..report import Cost, ModelSummary, Report
from .protocol import Store
from .queries.runs import SessionFigures, StoredReport, load_report
from .settle import usd_to_nano
from .witnesses import TOKEN_COLUMNS

_token_counters = attrgetter(*TOKEN_COLUMNS)


class _EarlierRun(NamedTuple):
    """A run of the same session: its own cost, and the session's total at its end."""

    id: str
    cost_nano: int | None
    session_nano: int


def subtract_earlier_runs(store: Store, report: Report) -> Report:
    """Reduce a report that may include earlier runs of its session to the run's own part.

    The agent's total at the end of the run before it is known from the ledger. Without one, the
    report stays as it is, with its warning.
    """
    if report.cost.session_usd is None or not {*EARLIER_RUNS_BOUNDS} & {*report.warnings}:
        return report
    figures = {name: getattr(report, name) for name in SessionFigures.__struct_fields__}
    own_part = structs.asdict(_own_part(store, report))
    return StoredReport(**own_part, session_figures=SessionFigures(**figures))


def _own_part(store: Store, report: Report) -> Report:
    total = usd_to_nano(report.cost.session_usd) or 0
    is_lower_bound = EARLIER_RUNS_LOWER_BOUND in report.warnings
    at_least = (usd_to_nano(report.cost.usd) or 0) if is_lower_bound else 0
    sql = (
        "SELECT id, cost_nano, session_nano FROM runs "
        "WHERE session = ? AND id <> ? AND session_nano < ? ORDER BY session_nano DESC"
    )
    values = (report.session_id, report.run_id, total - at_least)
    earlier = [_EarlierRun(*row) for row in store.query(sql, values)]
    if not earlier:
        return report
    latest = earlier[0].session_nano
    cost = Cost(nano_to_usd(total - latest), "reported", report.cost.session_usd)
    warnings = [text for text in report.warnings if text not in EARLIER_RUNS_BOUNDS]
    if is_lower_bound:
        warnings.append("output tokens are a lower bound: those of subagents are not reported")
        models = {name: replace(model, cost_usd=None) for name, model in report.models.items()}
        return replace(report, cost=cost, models=models, warnings=warnings)
    # Each of these runs is known, and no other: their parts add up to the total after the last.
    is_complete = sum(run.cost_nano or 0 for run in earlier) == latest
    models = _subtract_models(store, report, earlier) if is_complete else {}
    tokens = sum_tokens(ModelUsage(*_token_counters(model)) for model in models.values())
    if not models:
        warnings.append("tokens are unknown: those of earlier runs of this session are unknown")
    return replace(
        report,
        cost=cost,
        models=models,
        tokens=tokens,
        cache_hit_rate=cache_hit_rate(tokens),
        warnings=warnings,
    )


def _subtract_models(
    store: Store, report: Report, earlier: list[_EarlierRun]
) -> dict[str, ModelSummary]:
    """The figures per model without those of the earlier runs; empty if one is unknown."""
    models = dict(report.models)
    for run in earlier:
        known = load_report(store, run.id)
        if known is None or (known.cost.usd and not known.models):
            return {}
        for name, part in known.models.items():
            if name not in models:
                return {}
            pairs = zip(_token_counters(models[name]), _token_counters(part), strict=True)
            rest = [total - own for total, own in pairs if total is not None and own is not None]
            if len(rest) < len(TOKEN_COLUMNS) or min(rest) < 0:
                return {}
            counters = dict(zip(TOKEN_COLUMNS, rest, strict=True))
            models[name] = replace(models[name], cost_usd=None, **counters)
    return models
