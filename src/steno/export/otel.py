"""Sends the spans and metrics of a run by OTLP/HTTP, through OpenTelemetry's own packages.

The standard variables apply: OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _CERTIFICATE,
OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER and their variants.
"""

import logging
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from .. import __version__
from ..codec.redact import redact_and_truncate
from .spans import RunSpan, TraceContext

TIMEOUT_SECONDS = 5.0  # of one export with its retries, unless a variable says otherwise
BATCH_SPANS = 512
MAX_PROBLEM_CHARS = 200
SIGNAL_PATHS = {"traces": "v1/traces", "metrics": "v1/metrics"}
# Bucket boundaries as the conventions recommend.
TOKEN_BUCKETS = [4.0**power for power in range(14)]
DURATION_BUCKETS = [0.01 * 2**power for power in range(14)]
METRIC_ATTRIBUTES = (
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"),
    *("gen_ai.response.model", "gen_ai.agent.name"),
)


def send(spans: list[RunSpan], context: TraceContext, url: str | None) -> str | None:
    """Send the spans, then the metrics; what went wrong, if something did.

    `url` is the collector's; None: by the environment.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    with _collected_messages() as messages:
        resource = _resource()
        if _send_spans(spans, context, url, resource):
            _send_metrics(spans, url, resource)
        has_failed = any(record.levelno >= logging.ERROR for record in messages)
        return _problem(messages[0].getMessage()) if has_failed else None


def _resource() -> Resource:
    name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "steno"}
    if "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        name = {}
    return Resource.create({**name, "service.version": __version__})


def _exporter_options(signal: str, url: str | None) -> dict[str, Any]:
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
    has_timeout = any(os.environ.get(name) for name in names)
    endpoint = None if url is None else f"{url.rstrip('/')}/{SIGNAL_PATHS[signal]}"
    return {"endpoint": endpoint, "timeout": None if has_timeout else TIMEOUT_SECONDS}


# -- spans -----------------------------------------------------------------------------------------


class _GivenIds(IdGenerator):
    """Ids that are chosen before a span starts."""

    def __init__(self, trace_id: int) -> None:
        self.trace_id = trace_id
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Collector(SpanProcessor):
    """Keeps the spans that are sampled."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


def _send_spans(
    spans: list[RunSpan], context: TraceContext, url: str | None, resource: Resource
) -> bool:
    ids = _GivenIds(context.trace_id)
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    collector = _Collector()
    provider.add_span_processor(collector)
    tracer = provider.get_tracer("steno", __version__)
    for span in spans:
        ids.span_id = span.id
        _record(tracer, span, context)
    exporter = OTLPSpanExporter(**_exporter_options("traces", url))
    try:
        ended = collector.ended
        return all(
            exporter.export(ended[start : start + BATCH_SPANS]) is SpanExportResult.SUCCESS
            for start in range(0, len(ended), BATCH_SPANS)
        )
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # has no types


def _record(tracer: trace.Tracer, span: RunSpan, context: TraceContext) -> None:
    parent = INVALID_SPAN_CONTEXT
    if span.parent_id:
        is_remote = span.id == context.span_id
        flags = TraceFlags(context.flags)
        state = TraceState.from_header([context.state])
        parent = SpanContext(context.trace_id, span.parent_id, is_remote, flags, state)
    recorded = tracer.start_span(
        span.name,
        context=trace.set_span_in_context(NonRecordingSpan(parent)),
        kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
        attributes=span.attributes,
        start_time=span.start,
    )
    if span.error is not None:
        recorded.set_attribute("error.type", span.error)
        recorded.set_status(Status(StatusCode.ERROR, span.error))
    recorded.end(span.end)


# -- metrics ---------------------------------------------------------------------------------------


def _send_metrics(spans: list[RunSpan], url: str | None, resource: Resource) -> None:
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(**_exporter_options("metrics", url)), export_interval_millis=math.inf
    )
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("steno", __version__)
    duration = meter.create_histogram(
        "gen_ai.client.operation.duration",
        "s",
        "GenAI operation duration.",
        explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
    )
    usage = meter.create_histogram(
        "gen_ai.client.token.usage",
        "{token}",
        "Number of input and output tokens used.",
        explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
    )
    has_requests = any(span.attributes["gen_ai.operation.name"] == "chat" for span in spans)
    for span in spans:
        values = span.attributes
        attributes = {name: values[name] for name in METRIC_ATTRIBUTES if name in values}
        error = {} if span.error is None else {"error.type": span.error}
        duration.record((span.end - span.start) / 1e9, {**attributes, **error})
        # The run's own total only stands for requests that the agent does not list.
        if attributes["gen_ai.operation.name"] == "chat" or (not has_requests and span is spans[0]):
            for kind in ("input", "output"):
                count = values.get(f"gen_ai.usage.{kind}_tokens")
                if count is not None:
                    usage.record(count, {**attributes, "gen_ai.token.type": kind})
    provider.force_flush()
    provider.shutdown()


# -- problems --------------------------------------------------------------------------------------


class _LogRecords(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _collected_messages() -> Iterator[list[logging.LogRecord]]:
    """What OpenTelemetry logs, which would otherwise be printed."""
    logger = logging.getLogger("opentelemetry")
    handler = _LogRecords()
    old_propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.records
    finally:
        logger.removeHandler(handler)
        logger.propagate = old_propagate


def _problem(message: str) -> str:
    """The reason in a message, in few words."""
    known = re.search(r"Connection refused|timed out|Name or service not known|SSL\w*", message)
    if known is not None:
        return known[0]
    status = re.search(r"code: (\d+), reason: ([\w ]+)", message)
    if status is not None:
        return f"HTTP {status[1]} {status[2].strip()}"
    reason = re.search(r"Transient error (.+?) encountered", message)
    return redact_and_truncate(reason[1] if reason else message, MAX_PROBLEM_CHARS)
