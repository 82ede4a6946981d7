"""Notifications of `run` and `watch`, sent in the background within a bounded time."""

from collections.abc import Callable, Iterable

from ..event import Alert, Event
from ..export.notification import (
    BUDGET_KINDS,
    Notification,
    NotificationServices,
    budget_message,
    run_message,
)
from ..report import Report
from ..runner.hooks import BackgroundQueue
from .options import require_extra
from .stream_options import drain_queue

MAX_PENDING = 20
MAX_SEND_SECONDS = 15.0  # at the end, for all services together


class Notifier:
    """Sends what `notify_on` selects. StenoError: a URL or the package is not usable."""

    def __init__(self, urls: tuple[str, ...], notify_on: tuple[str, ...]) -> None:
        require_extra("--notify", "apprise", "notify")
        self._notify_on = notify_on
        self._services = NotificationServices(urls)
        self._failures: list[str] = []
        self._queue: BackgroundQueue[Notification] = BackgroundQueue(
            self._send, MAX_PENDING, "steno notify"
        )

    def _send(self, message: Notification) -> None:
        self._failures += self._services.send(message)

    def add(self, events: Iterable[Event], name: str | None = None) -> None:
        """Notify of a budget of which a level is reached, while the run is active."""
        if "budget" not in self._notify_on:
            return
        for event in events:
            if isinstance(event, Alert) and event.kind in BUDGET_KINDS and not event.is_passed:
                self._queue.put(budget_message(event, name), 1)

    def finish(
        self,
        report: Report,
        warn: Callable[[str], None],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Notify of the end of the run, and wait for what is pending. A failure is a warning."""
        is_selected = "always" in self._notify_on or (
            "failure" in self._notify_on and not report.ok
        )
        if is_selected or ("budget" in self._notify_on and report.verdict == "max_budget"):
            self._queue.put(run_message(report), 1)
        problem = drain_queue(self._queue, MAX_SEND_SECONDS, is_cancelled)
        for text in self._failures:
            warn(text)
        if problem is not None:
            warn(f"notifications not sent: {problem}")
