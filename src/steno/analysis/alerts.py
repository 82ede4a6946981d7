"""Alerts of an active run: a level of its context was reached. Pure."""

from collections.abc import Iterable

from .. import event as ev
from .accumulator import Accumulator
from .context import context_usage


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
            ev.Alert(0, None, None, event.at, "context", level, used, limit, is_assumed)
            for level in reached
        ]
