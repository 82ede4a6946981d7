"""What a run is doing now: its state, its turn, its open calls, how full its context is. Pure: events in, values out.

The fold keeps what a report needs; this keeps what somebody wants to see while the run goes on. It asks no clock.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .. import event as ev
from ..codec.decode import decode_raw
from ..report import Context
from .accumulator import larger_count
from .usage import build_context, find_main_model

# What a call is about, by the first of these that its input has.
TARGET_FIELDS = (
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "url",
    "query",
    "description",
    "skill",
    "path",
    "prompt",
)
PROGRESS_EVENTS = (
    ev.Text,
    ev.Thinking,
    ev.Partial,
    ev.ToolCall,
    ev.Usage,
)  # signs that a request came through


def call_target(given: Any) -> str:
    """What a call is about, from its input: the command, the file, the pattern, the address."""
    if not isinstance(given, dict):
        return "" if given is None else _to_json(given)
    for name in TARGET_FIELDS:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
    return _to_json(given) if given else ""


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


class LiveState:
    """One run, as it goes on. `window` tells how much a model's context holds."""

    def __init__(self, window: Callable[[str], int | None]) -> None:
        self.turns = 0  # requests of the main thread
        self.model: str | None = None
        self.session: str | None = None
        self._cwd: str | None = None
        self.open_calls: dict[str, ev.ToolCall] = {}  # calls without an answer, in their order
        self.retry: ev.Retry | None = None  # the agent waits before it asks again
        self.stop: ev.StopRequested | None = None
        self._window_of = window
        self._has_started = self._has_result = self._has_exited = False
        self._message: str | None = None
        self._used: int | None = None
        self._limit: int | None = None
        self._target_cache: tuple[ev.ToolCall, str] | None = None

    def add(self, events: Iterable[ev.Event]) -> None:
        """Take in what came."""
        for event in events:
            if isinstance(event, PROGRESS_EVENTS):
                self._has_started, self.retry = True, None
            taker = EVENT_METHODS.get(type(event))
            if taker is not None:
                taker(self, event)

    # -- what is asked of it -------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One word: starting, thinking, running (a tool), retrying, closing, stopping or ended."""
        if self._has_exited:
            return "ended"
        if self.stop is not None:
            return "stopping"
        if self.retry is not None:
            return "retrying"
        if self.open_calls:
            return "running"
        if self._has_result:
            return "closing"
        return "thinking" if self._has_started else "starting"

    @property
    def current_tool(self) -> tuple[str, str] | None:
        """The call that was opened last, and what it is about: a file by its name below the folder of the run."""
        call = next(reversed(self.open_calls.values()), None)
        if call is None:
            return None
        if self._target_cache is None or self._target_cache[0] is not call:
            about = call_target(decode_raw(call.input))
            self._target_cache = call, about.removeprefix(f"{self._cwd}/") if self._cwd else about
        return call.name, self._target_cache[1]

    @property
    def context(self) -> Context:
        """How full the window of the main thread is."""
        limit, source = self._limit, "reported"
        if limit is None:
            limit, source = self._window_of(self.model or ""), "known"
        return build_context(
            self._used, limit, source if limit is not None else "assumed", "measured", None, 0
        )

    # -- events --------------------------------------------------------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        self._has_started = True
        self.model, self.session = event.model or self.model, event.session or self.session
        self._cwd = self._cwd or event.cwd

    def _on_usage(self, event: ev.Usage) -> None:
        if event.parent is not None:
            return
        if self._message is None or event.message != self._message:
            self.turns, self._message = self.turns + 1, event.message
        self._has_result = False
        self.model = self.model or event.model
        if (
            event.input is not None
            and event.cache_write is not None
            and event.cache_read is not None
        ):
            self._used = event.input + event.cache_write + event.cache_read

    def _on_tool_call(self, event: ev.ToolCall) -> None:
        self.open_calls[event.id] = event

    def _on_tool_result(self, event: ev.ToolResult) -> None:
        self.open_calls.pop(event.id, None)

    def _on_retry(self, event: ev.Retry) -> None:
        self.retry = event

    def _on_compaction(self, event: ev.Compaction) -> None:
        if event.parent is None:
            self._used = event.after

    def _on_agent_result(self, event: ev.Result) -> None:
        self._has_started = self._has_result = True
        self.open_calls.clear()
        self.session = event.session or self.session
        key = find_main_model(event.models or {}, self.model)
        share = (event.models or {}).get(key or "")
        if share is not None and share.context_window:
            self._limit = share.context_window

    def _on_stop(self, event: ev.StopRequested) -> None:
        self.stop = self.stop or event

    def _on_exit(self, event: ev.Exited) -> None:
        self._has_exited = True
        self.open_calls.clear()


EVENT_METHODS: dict[type[ev.Event], Callable[[LiveState, Any], None]] = {
    ev.Started: LiveState._on_started,
    ev.Usage: LiveState._on_usage,
    ev.ToolCall: LiveState._on_tool_call,
    ev.ToolResult: LiveState._on_tool_result,
    ev.Retry: LiveState._on_retry,
    ev.Compaction: LiveState._on_compaction,
    ev.Result: LiveState._on_agent_result,
    ev.StopRequested: LiveState._on_stop,
    ev.Exited: LiveState._on_exit,
}


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
        self.cost_nano = (
            None if self.cost_nano is None or cost is None else self.cost_nano + cost - (nano or 0)
        )
