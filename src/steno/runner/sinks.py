"""Delivery of events to sinks. A sink that fails is removed, and the run continues."""

from collections.abc import Callable
from typing import TypeVar

SinkT = TypeVar("SinkT")


def deliver(sinks: list[SinkT], send: Callable[[SinkT], object], warnings: list[str]) -> None:
    """Call `send` for each sink; one that raises is removed from `sinks`, with a warning."""
    for sink in list(sinks):
        try:
            send(sink)
        except Exception as error:  # a failing listener must not stop the run
            sinks.remove(sink)
            warnings.append(f"event sink failed and was removed: {type(error).__name__}: {error}")
