"""The figures of a card: tokens, cost, context. Each says where it comes from; what is not known is called unknown."""

from collections.abc import Iterable

from ..report import Context, Report, Tokens
from .look import PageStyle
from .page import LABEL_COLUMNS, SectionRow, render_section
from .words import UNKNOWN, format_count, format_money, format_number, format_percent

GAUGE_COLUMNS = 20  # columns of the gauge on a wide page
COST_SOURCES = {
    "reported": "reported by the agent",
    "computed": "computed from the price table",
    "local": "on a model server of one's own",
}
WINDOW_SOURCES = {"reported": "as reported", "known": "known for this model", "assumed": "assumed"}
STATUS_COLOURS = {"Healthy": "green", "Wounded": "yellow", "CRITICAL": "red"}


def usage_section(report: Report, look: PageStyle, extra: Iterable[SectionRow] = ()) -> list[str]:
    """Tokens, cost and context as lines; `extra` rows stand below the cost."""
    found = render_section(look, "tokens", _token_rows(report))
    found += render_section(look, "cost", [*_cost_rows(report), *extra])
    return found + render_section(look, "context", _context_rows(report.context, look))


def _token_rows(report: Report) -> list[SectionRow]:
    tokens = report.tokens
    if tokens == Tokens():
        return [SectionRow(UNKNOWN)]
    if tokens.total == 0:
        return [SectionRow("0")]
    parts = (
        f"input {format_number(tokens.input)}",
        f"cache write {format_number(tokens.cache_write)}",
        f"cache read {format_number(tokens.cache_read)}",
        f"output {format_number(tokens.output)}" + (f" (reasoning {format_number(tokens.reasoning)})" if tokens.reasoning else ""),
    )
    rows = [
        SectionRow(f"{format_number(tokens.total)} in all · cache hit rate {format_percent(report.cache_hit_rate)}"),
        SectionRow(" · ".join(parts)),
    ]
    if len(report.models) > 1:
        rows += [SectionRow(f"{name}: {format_money(model.cost_usd)}, output {format_number(model.output)}") for name, model in report.models.items()]
    return rows


def _cost_rows(report: Report) -> list[SectionRow]:
    cost = report.cost
    text = UNKNOWN if cost.usd is None else f"{format_money(cost.usd)} {COST_SOURCES.get(cost.source, cost.source)}"
    session = cost.session_usd
    if session is not None and (cost.usd is None or abs(session - cost.usd) > 1e-6):
        text += f" · the session so far {format_money(session)}"
    return [SectionRow(text)]


def _context_rows(context: Context, look: PageStyle) -> list[SectionRow]:
    if context.used is None or context.fraction is None:
        rows = [SectionRow(context.text)]
    else:
        most = "at most " if context.source == "upper_bound" else ""
        room = look.columns - LABEL_COLUMNS
        gauge = f"{_gauge(context.fraction, min(GAUGE_COLUMNS, room // 2))} {most}{format_percent(context.fraction)} used"
        texts = [f"{gauge} · {context.text}"] if len(gauge) + len(context.text) + 3 <= room else [gauge, context.text]
        rows = [SectionRow(text, STATUS_COLOURS.get(context.status or "", "")) for text in texts]
    facts = [f"peak {format_number(context.peak)}"] if context.peak is not None else []
    facts.append(f"window {format_number(context.limit)} ({WINDOW_SOURCES.get(context.limit_source, context.limit_source)})")
    if context.compactions:
        facts.append(format_count(context.compactions, "compaction"))
    return [*rows, SectionRow(" · ".join(facts))]


def _gauge(fraction: float, columns: int) -> str:
    full = min(columns, round(fraction * columns))
    if fraction > 0 and not full:
        full = 1
    return "█" * full + "░" * (columns - full)
