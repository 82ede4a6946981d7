"""The reports of a task's attempts as one report (S). Pure."""

from collections.abc import Sequence

import msgspec

from ..meter import dollars, plus, total
from ..prices import NANO
from ..report import Attempt, Cost, File, Model, Report, TaskReport, Tokens, ToolCount

_COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning", "total")


def attempt(report: Report, why: str) -> Attempt:
    """One attempt's line in the list."""
    whose = (report.run_id, report.session_id, report.verdict)
    return Attempt(*whose, report.tokens, report.cost, report.turns, report.duration_ms, why, report.agent)


def merged(reports: Sequence[Report], whys: Sequence[str], task: str | None, teller: int = -1) -> TaskReport:
    """The task's report. The last attempt, or `teller`, says how it ended; what was spent and done is all of it."""
    last = reports[teller]
    found = TaskReport(**{name: getattr(last, name) for name in Report.__struct_fields__})
    found.task_id, found.attempts = task, [attempt(report, why) for report, why in zip(reports, whys, strict=True)]
    if len(reports) == 1:
        return found
    found.tokens = _tokens(reports)
    asked = total((found.tokens.input, found.tokens.cache_write, found.tokens.cache_read))
    found.cache_hit_rate = found.tokens.cache_read / asked if asked and found.tokens.cache_read is not None else None
    found.cost = _cost(reports)
    found.models = _models(reports)
    found.requests = sum(report.requests for report in reports)
    found.turns = total(report.turns for report in reports)
    found.duration_ms = total(report.duration_ms for report in reports)
    found.duration_api_ms = total(report.duration_api_ms for report in reports)
    found.started_at = next((report.started_at for report in reports if report.started_at is not None), None)
    found.tools = [tool for report in reports for tool in report.tools]
    found.tool_counts = _counts(reports)
    found.files = _files(reports)
    found.denials = [denial for report in reports for denial in report.denials]
    found.retries = [retry for report in reports for retry in report.retries]
    found.subagents = [agent for report in reports for agent in report.subagents]
    found.warnings = [*_orphans([report for report in reports if report is not last]), *last.warnings]
    return found


def _orphans(reports: Sequence[Report]) -> list[str]:
    """What an earlier attempt left behind is left still; its other warnings are about an end that was mended."""
    return [warning for report in reports for warning in report.warnings if warning.startswith("orphan:")]


def _tokens(reports: Sequence[Report]) -> Tokens:
    """The sum; unknown if an attempt that asked a model does not know its part."""
    given = [report.tokens for report in reports if report.requests or report.tokens.total is not None]
    return Tokens(*(total(getattr(share, name) for share in given) for name in _COUNTERS))


def _cost(reports: Sequence[Report]) -> Cost:
    """The sum of the attempts' own parts; unknown if one that asked a model is; reported or local only if all are."""
    spent = [report.cost for report in reports if report.requests or report.cost.usd]
    session = reports[-1].cost.session_usd
    if not spent:
        return Cost(reports[-1].cost.usd, reports[-1].cost.source, session)
    if any(cost.usd is None for cost in spent):
        return Cost(None, "unknown", session)
    nano = sum(round((cost.usd or 0.0) * NANO) for cost in spent)
    sources = {cost.source for cost in spent} - {"local"}  # what costs nothing changes no sum
    source = "local" if not sources else "reported" if sources == {"reported"} else "computed"
    return Cost(dollars(nano), source, session)


def _models(reports: Sequence[Report]) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for report in reports:
        for name, model in report.models.items():
            found[name] = _both(found[name], model) if name in found else model
    return found


def _both(one: Model, other: Model) -> Model:
    nanos = (None if model.cost_usd is None else round(model.cost_usd * NANO) for model in (one, other))
    return msgspec.structs.replace(
        other,
        input=plus(one.input, other.input),
        cache_write=plus(one.cache_write, other.cache_write),
        cache_read=plus(one.cache_read, other.cache_read),
        output=plus(one.output, other.output),
        cost_usd=dollars(plus(*nanos)),
    )


def _counts(reports: Sequence[Report]) -> dict[str, ToolCount]:
    found: dict[str, ToolCount] = {}
    for report in reports:
        for name, count in report.tool_counts.items():
            known = found.setdefault(name, ToolCount())
            known.calls += count.calls
            known.errors += count.errors
    return found


def _files(reports: Sequence[Report]) -> list[File]:
    """Each file once: created stays created, whatever later attempts did to it, unless it is gone."""
    found: dict[str, File] = {}
    for report in reports:
        for file in report.files:
            known = found.get(file.absolute)
            if known is None:
                found[file.absolute] = msgspec.structs.replace(file, tools=list(file.tools))
                continue
            known.tools += file.tools
            if "deleted" in (file.change, known.change):
                known.change = file.change
    return list(found.values())
