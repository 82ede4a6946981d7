"""What a run has spent so far, request by request: for the live line and for budgets. It only adds up."""

from collections.abc import Callable

from .. import event as ev
from ..told import larger_count

PriceLookup = Callable[..., int | None]


def zero_price(model: str, share: object, at: object) -> int:
    """The price of what runs on a server of one's own."""
    return 0


class SpendTracker:
    """Tokens and cost of a run that goes on. Cost is None as soon as a request has no known price."""

    def __init__(self, price: PriceLookup | None) -> None:
        self.price = price
        self.tokens = 0
        self.cost_nano: int | None = 0
        self._requests: dict[str, tuple[int, int | None, ev.Usage]] = {}

    def start_pricing(self, price: PriceLookup) -> None:
        """Somebody wants to know what it costs: from now on, and what was spent already."""
        if self.price is not None:
            return
        self.price = price
        for key, (tokens, _, told) in self._requests.items():
            self._requests[key] = (tokens, price(told.model or "", told, told.at), told)
        costs = [cost for _, cost, _ in self._requests.values()]
        self.cost_nano = None if None in costs else sum(cost for cost in costs if cost is not None)

    def add(self, told: ev.Usage) -> None:
        """One request, or more about one that was told before."""
        key = told.message or f"line {told.line}"
        tokens, nano, before = self._requests.get(key, (0, 0, told))
        output = larger_count(before.output, told.output) or 0
        now = (told.input or 0) + (told.cache_write or 0) + (told.cache_read or 0) + output
        if now <= tokens:
            return
        cost = self.price(told.model or "", told, told.at) if self.price is not None else None
        self._requests[key] = (now, cost, told)
        self.tokens += now - tokens
        self.cost_nano = None if self.cost_nano is None or cost is None else self.cost_nano + cost - (nano or 0)
