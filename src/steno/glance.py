"""What a run is doing now: its state, its turn, its open calls, how full its context is. Pure: events in, values out.

The fold keeps what a report needs; this keeps what somebody wants to see while the run goes on. It asks no clock.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from . import event as ev
from .decode import plain
from .meter import context, main_model
from .report import Context

# What a call is about, by the first of these that its input has.
TARGETS = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "skill", "path", "prompt")
GOES_ON = (ev.Text, ev.Thinking, ev.Partial, ev.ToolCall, ev.Usage)  # signs that a request came through


def target(given: Any) -> str:
    """What a call is about, from its input: the command, the file, the pattern, the address."""
    if not isinstance(given, dict):
        return "" if given is None else _json(given)
    for name in TARGETS:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
    return _json(given) if given else ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


class Glance:
    """One run, as it goes on. `window` tells how much a model's context holds."""

    def __init__(self, window: Callable[[str], int | None]) -> None:
        self.turns = 0  # requests of the main thread
        self.model: str | None = None
        self.session: str | None = None
        self._cwd: str | None = None
        self.open: dict[str, ev.ToolCall] = {}  # calls without an answer, in their order
        self.retry: ev.Retry | None = None  # the agent waits before it asks again
        self.stop: ev.StopRequested | None = None
        self._window = window
        self._begun = self._closed = self._ended = False
        self._message: str | None = None
        self._used: int | None = None
        self._limit: int | None = None
        self._shown: tuple[ev.ToolCall, str] | None = None

    def add(self, events: Iterable[ev.Event]) -> None:
        """Take in what came."""
        for event in events:
            if isinstance(event, GOES_ON):
                self._begun, self.retry = True, None
            taker = TAKERS.get(type(event))
            if taker is not None:
                taker(self, event)

    # -- what is asked of it -------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One word: starting, thinking, running (a tool), retrying, closing, stopping or ended."""
        if self._ended:
            return "ended"
        if self.stop is not None:
            return "stopping"
        if self.retry is not None:
            return "retrying"
        if self.open:
            return "running"
        if self._closed:
            return "closing"
        return "thinking" if self._begun else "starting"

    @property
    def tool(self) -> tuple[str, str] | None:
        """The call that was opened last, and what it is about: a file by its name below the folder of the run."""
        call = next(reversed(self.open.values()), None)
        if call is None:
            return None
        if self._shown is None or self._shown[0] is not call:
            about = target(plain(call.input))
            self._shown = call, about.removeprefix(f"{self._cwd}/") if self._cwd else about
        return call.name, self._shown[1]

    @property
    def context(self) -> Context:
        """How full the window of the main thread is."""
        limit, source = self._limit, "reported"
        if limit is None:
            limit, source = self._window(self.model or ""), "known"
        return context(self._used, limit, source if limit is not None else "assumed", "measured", None, 0)

    # -- events --------------------------------------------------------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        self._begun = True
        self.model, self.session = event.model or self.model, event.session or self.session
        self._cwd = self._cwd or event.cwd

    def _on_usage(self, event: ev.Usage) -> None:
        if event.parent is not None:
            return
        if self._message is None or event.message != self._message:
            self.turns, self._message = self.turns + 1, event.message
        self._closed = False
        self.model = self.model or event.model
        if event.input is not None and event.cache_write is not None and event.cache_read is not None:
            self._used = event.input + event.cache_write + event.cache_read

    def _on_call(self, event: ev.ToolCall) -> None:
        self.open[event.id] = event

    def _on_result(self, event: ev.ToolResult) -> None:
        self.open.pop(event.id, None)

    def _on_retry(self, event: ev.Retry) -> None:
        self.retry = event

    def _on_compaction(self, event: ev.Compaction) -> None:
        if event.parent is None:
            self._used = event.after

    def _on_end(self, event: ev.Result) -> None:
        self._begun = self._closed = True
        self.open.clear()
        self.session = event.session or self.session
        key = main_model(event.models or {}, self.model)
        share = (event.models or {}).get(key or "")
        if share is not None and share.context_window:
            self._limit = share.context_window

    def _on_stop(self, event: ev.StopRequested) -> None:
        self.stop = self.stop or event

    def _on_exit(self, event: ev.Exited) -> None:
        self._ended = True
        self.open.clear()


TAKERS: dict[type[ev.Event], Callable[[Glance, Any], None]] = {
    ev.Started: Glance._on_started,
    ev.Usage: Glance._on_usage,
    ev.ToolCall: Glance._on_call,
    ev.ToolResult: Glance._on_result,
    ev.Retry: Glance._on_retry,
    ev.Compaction: Glance._on_compaction,
    ev.Result: Glance._on_end,
    ev.StopRequested: Glance._on_stop,
    ev.Exited: Glance._on_exit,
}
