"""The rows that `--prices` adds to a card: the price table's figure beside the agent's, and what the cache saved."""

from .. import meter
from ..event import ModelUsage
from ..fold import Accumulator
from ..prices import price
from ..report import ModelSummary, Report
from ..screen.page import SectionRow
from ..screen.words import UNKNOWN, format_money


def price_rows(report: Report, fold: Accumulator) -> list[SectionRow]:
    """What the run's tokens cost by the table, and what they would have cost without cache reads."""
    shares = [(name, _model_usage(name, model, fold)) for name, model in report.models.items()]
    told = _total_nano(report, shares)
    without = _total_nano(report, [(name, _without_cache_reads(share)) for name, share in shares])
    saved = None if told is None or without is None else without - told
    return [
        SectionRow(f"by the price table {_format_nano(told)}"),
        SectionRow(f"cache reads saved {_format_nano(saved)}" if saved is not None else f"saved by cache reads: {UNKNOWN}"),
    ]


def _format_nano(nano: int | None) -> str:
    return format_money(meter.nano_to_usd(nano))


def _total_nano(report: Report, shares: list[tuple[str, ModelUsage]]) -> int | None:
    parts = [price(name, share, report.started_at) for name, share in shares]
    return sum(part or 0 for part in parts) if parts and None not in parts else None


def _model_usage(name: str, model: ModelSummary, fold: Accumulator) -> ModelUsage:
    """A model's tokens. Only the single requests tell which cache writes are kept for an hour, at another price."""
    own = [request for request in fold.requests.values() if request.model == meter.base_model_name(name)]
    hour = min(sum(request.cache_write_1h or 0 for request in own), model.cache_write or 0)
    return ModelUsage(model.input, model.cache_write, model.cache_read, model.output, cache_write_1h=hour)


def _without_cache_reads(share: ModelUsage) -> ModelUsage:
    from msgspec.structs import replace

    known = share.input is not None and share.cache_read is not None
    return replace(share, input=(share.input or 0) + (share.cache_read or 0) if known else None, cache_read=0)
