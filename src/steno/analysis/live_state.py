"""Views of an accumulator while its run is active: state, spend so far, alerts. Pure."""

from collections.abc import Iterable, KeysView, Sequence
from typing import Any

import msgspec

from .. import event as ev
from ..codec.decode import decode_raw
from ..report import Context, HintTemplates
from .accumulator import Accumulator
from .context import context_usage
from .list_price import PriceLookup
from .usage import request_key

# The input field that names a call's target: the first of these that is present.
TARGET_FIELDS = (
    "command",
    "file_path",
    "filePath",
    "notebook_path",
    "pattern",
    "url",
    "query",
    "description",
    "skill",
    "path",
    "prompt",
)


def call_target(tool_input: Any) -> str:
    """What a call works on, from its input: a command, file, pattern or URL."""
    if not isinstance(tool_input, dict):
        return "" if tool_input is None else _to_json(tool_input)
    for name in TARGET_FIELDS:
        value = tool_input.get(name)
        if isinstance(value, str) and value:
            return value
    return _to_json(tool_input) if tool_input else ""


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


class _NoAgent:
    """The profile of a run that has not started."""

    name = ""
    hints = HintTemplates()
    totals_omit_subagents = False

    def context_window(self, model: str) -> int | None:
        return None

    def guesses_window(self, model: str, window: int) -> bool:
        return False

    def allow_rule(
        self, tool: str, tool_input: Any, cwd: str | None, reason: str | None
    ) -> str | None:
        return tool

    def classify_exit(self, code: int, stderr: Sequence[str]) -> tuple[str, str] | None:
        return None


class LiveState:
    """The current state of a run, read from its accumulator; without one, of a run to come.

    `usage` is the accumulator of its requests, if that is another one.
    """

    def __init__(self, run: Accumulator | None = None, usage: Accumulator | None = None) -> None:
        self._run = Accumulator(_NoAgent()) if run is None else run
        self._usage = self._run if usage is None else usage
        self._target_cache: tuple[str, str] | None = None  # call id, target

    @property
    def state(self) -> str:
        """One of starting, thinking, running (a tool), retrying, closing, stopping, ended."""
        run = self._run
        if run.facts.exited is not None:
            return "ended"
        if run.facts.stop is not None:
            return "stopping"
        if run.pending_retry is not None:
            return "retrying"
        if self.open_calls:
            return "running"
        if run.results and not run.has_later_requests:
            return "closing"
        return "thinking" if run.has_activity else "starting"

    @property
    def turns(self) -> int:
        """Requests of the main thread, with usage or without."""
        # The same ones, if both are known.
        return max(len(self._usage.main_keys), self._run.unmeasured_requests)

    @property
    def model(self) -> str | None:
        return self._run.model or self._usage.model

    @property
    def session(self) -> str | None:
        return self._run.session

    @property
    def retry(self) -> ev.Retry | None:
        """The failed request the agent is about to retry."""
        return self._run.pending_retry

    @property
    def stop(self) -> ev.StopRequested | None:
        return self._run.facts.stop

    @property
    def open_calls(self) -> KeysView[str]:
        """Ids of the unanswered calls since the last result, oldest first."""
        run = self._run
        return {}.keys() if run.facts.exited is not None else run.open_calls.keys()

    @property
    def current_tool(self) -> tuple[str, str] | None:
        """Name and target of the newest open call; paths are relative to the run's folder."""
        if not self.open_calls:
            return None
        tool, tool_input = next(reversed(self._run.open_calls.values()))
        if self._target_cache is None or self._target_cache[0] != tool.id:
            target = call_target(decode_raw(tool_input))
            cwd = self._run.started.cwd if self._run.started is not None else None
            self._target_cache = (tool.id, target.removeprefix(f"{cwd}/") if cwd else target)
        return tool.name, self._target_cache[1]

    @property
    def context(self) -> Context:
        """The main thread's context, as far as it was measured."""
        return context_usage(self._usage, self.model, measured_only=True)


class SpendTracker:
    """Tokens and cost of an active run. The cost is None once a request has no known price."""

    def __init__(self, run: Accumulator, price: PriceLookup | None) -> None:
        self.price = price
        self.tokens = 0
        self.cost_nano: int | None = 0
        self._requests = run.requests
        self._counted: dict[str, tuple[int, int]] = {}  # tokens and cost by request

    def start_pricing(self, price: PriceLookup) -> None:
        """Compute the cost from now on, including what was spent already."""
        if self.price is not None:
            return
        self.price = price
        counted, self._counted = self._counted, {}
        self.tokens = 0
        self.cost_nano = 0
        for key in counted:
            self.add(self._requests[key])

    def add(self, usage: ev.Usage) -> None:
        """Count a request that the accumulator has added or updated."""
        key = request_key(usage)
        request = self._requests[key]
        counted_tokens, counted_nano = self._counted.get(key, (0, 0))
        tokens = sum(
            count or 0
            for count in (request.input, request.cache_write, request.cache_read, request.output)
        )
        if tokens <= counted_tokens:
            return
        cost = self.price(request.model or "", request, request.at) if self.price else None
        self._counted[key] = (tokens, cost or 0)
        self.tokens += tokens - counted_tokens
        if self.cost_nano is not None:
            self.cost_nano = None if cost is None else self.cost_nano + cost - counted_nano


class ContextAlerts:
    """Alerts on levels of the main thread's context, each once; a compaction re-arms them.

    They depend on single events, so that live chunks and a replay give the same ones.
    """

    def __init__(self, run: Accumulator, levels: Iterable[float]) -> None:
        self._run = run
        self._levels = sorted(levels)
        self._raised: set[float] = set()

    def check(self, event: ev.Event) -> list[ev.Alert]:
        """The alerts of an event that the accumulator has just added."""
        if not self._levels or event.parent is not None:
            return []
        if type(event) is ev.Compaction:
            self._raised.clear()
        elif type(event) not in (ev.Usage, ev.Started):  # a start can name the window
            return []
        context = context_usage(self._run, self._run.model, measured_only=True)
        used, limit, fraction = context.used, context.limit, context.fraction
        if used is None or limit is None or fraction is None:
            return []
        reached = [
            level for level in self._levels if level <= fraction and level not in self._raised
        ]
        self._raised.update(reached)
        is_assumed = context.limit_source == "assumed"
        return [
            ev.Alert(
                *(0, None, None, event.at),
                kind="context",
                level=level,
                used=used,
                limit=limit,
                is_assumed=is_assumed,
                is_passed=level < reached[-1],
            )
            for level in reached
        ]
