"""Telemetry of `run`, `watch` and `show`: the trace of a task, sent within a bounded time."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..codec.redact import redact
from ..config import SETTINGS_BY_NAME
from ..errors import StenoError
from ..export.spans import TRACEPARENT, TRACESTATE, TraceContext, TraceRecorder, trace_context
from ..report import Report
from ..runner.hooks import BackgroundQueue
from .options import require_extra
from .stream_options import drain_queue

if TYPE_CHECKING:
    from ..event import Event

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_WORDS = ("true", "span_only", "span_and_event")
MAX_SEND_SECONDS = 15.0  # for everything, however slow the collector is


class OtelOutput:
    """Records the events of one task and sends its trace. StenoError if packages are missing."""

    def __init__(self, target: str, with_content: bool, run_id: str | None = None) -> None:
        require_extra("--otel", "opentelemetry.exporter.otlp.proto.http", "otel")
        word = os.environ.get(CONTENT_VARIABLE, "").strip().lower()
        self._url = None if target == "on" else target
        self._recorder = TraceRecorder(with_content or word in CONTENT_WORDS)
        self._context = None if run_id is None else trace_context(os.environ, run_id)

    def environment(self) -> dict[str, str]:
        """The variables with which the agent continues the trace; for a given run only."""
        if self._context is None:
            return {}
        state = {TRACESTATE: self._context.state} if self._context.state else {}
        return {TRACEPARENT: self._context.traceparent, **state}

    def add(self, events: "list[Event]", run_id: str = "") -> None:
        self._recorder.add(events, run_id)

    def finish(
        self,
        report: Report,
        warn: Callable[[str], None],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send the trace, at most for MAX_SEND_SECONDS. A failure is a warning."""
        context = self._context or trace_context(os.environ, report.run_id or report.session_id)
        spans = self._recorder.spans(report, context)
        problems: list[str] = []

        def send(context: TraceContext) -> None:
            from ..export import otel

            problem = otel.send(spans, context, self._url)
            problems.extend([] if problem is None else [problem])

        queue: BackgroundQueue[TraceContext] = BackgroundQueue(send, 1, "steno otel")
        queue.put(context, 1)
        problem = drain_queue(queue, MAX_SEND_SECONDS, is_cancelled)
        problems += [] if problem is None else [problem]
        if problems:
            target = self._url or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "the collector"
            warn(f"--otel: telemetry not sent to {redact(target)}: {problems[0]}")


def parse_otel_option(text: str | None) -> str | None:
    """The option of a command that reads no settings. StenoError if it is not a URL."""
    try:
        return None if text is None else SETTINGS_BY_NAME["otel"].parse(text)
    except ValueError as expected:
        raise StenoError(f"--otel: expected {expected}, found {text!r}") from None
