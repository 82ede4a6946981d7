"""The figures of a card: tokens, cost, context. Each says where it comes from; what is not known is called unknown."""

from collections.abc import Iterable

from ..report import Context, Report, Tokens
from .look import Look
from .page import LABEL, Row, part
from .words import UNKNOWN, money, number, percent, several

BAR = 20  # columns of the gauge on a wide page
SOURCES = {
    "reported": "reported by the agent",
    "computed": "computed from the price table",
    "local": "on a model server of one's own",
}
WINDOWS = {"reported": "as reported", "known": "known for this model", "assumed": "assumed"}
COLOURS = {"Healthy": "green", "Wounded": "yellow", "CRITICAL": "red"}


def lines(report: Report, look: Look, extra: Iterable[Row] = ()) -> list[str]:
    """Tokens, cost and context as lines; `extra` rows stand below the cost."""
    found = part(look, "tokens", _tokens(report))
    found += part(look, "cost", [*_cost(report), *extra])
    return found + part(look, "context", _context(report.context, look))


def _tokens(report: Report) -> list[Row]:
    tokens = report.tokens
    if tokens == Tokens():
        return [Row(UNKNOWN)]
    if tokens.total == 0:
        return [Row("0")]
    parts = (
        f"input {number(tokens.input)}",
        f"cache write {number(tokens.cache_write)}",
        f"cache read {number(tokens.cache_read)}",
        f"output {number(tokens.output)}" + (f" (reasoning {number(tokens.reasoning)})" if tokens.reasoning else ""),
    )
    rows = [
        Row(f"{number(tokens.total)} in all · cache hit rate {percent(report.cache_hit_rate)}"),
        Row(" · ".join(parts)),
    ]
    if len(report.models) > 1:
        rows += [Row(f"{name}: {money(model.cost_usd)}, output {number(model.output)}") for name, model in report.models.items()]
    return rows


def _cost(report: Report) -> list[Row]:
    cost = report.cost
    text = UNKNOWN if cost.usd is None else f"{money(cost.usd)} {SOURCES.get(cost.source, cost.source)}"
    session = cost.session_usd
    if session is not None and (cost.usd is None or abs(session - cost.usd) > 1e-6):
        text += f" · the session so far {money(session)}"
    return [Row(text)]


def _context(context: Context, look: Look) -> list[Row]:
    if context.used is None or context.fraction is None:
        rows = [Row(context.text)]
    else:
        most = "at most " if context.source == "upper_bound" else ""
        room = look.columns - LABEL
        gauge = f"{_bar(context.fraction, min(BAR, room // 2))} {most}{percent(context.fraction)} used"
        texts = [f"{gauge} · {context.text}"] if len(gauge) + len(context.text) + 3 <= room else [gauge, context.text]
        rows = [Row(text, COLOURS.get(context.status or "", "")) for text in texts]
    facts = [f"peak {number(context.peak)}"] if context.peak is not None else []
    facts.append(f"window {number(context.limit)} ({WINDOWS.get(context.limit_source, context.limit_source)})")
    if context.compactions:
        facts.append(several(context.compactions, "compaction"))
    return [*rows, Row(" · ".join(facts))]


def _bar(fraction: float, columns: int) -> str:
    full = min(columns, round(fraction * columns))
    if fraction > 0 and not full:
        full = 1
    return "█" * full + "░" * (columns - full)
