"""An OTLP/HTTP receiver on loopback: decodes protobuf into plain values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .inbox import Inbox, serving


class Collector(Inbox):
    """What was received, decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.points: list[dict[str, Any]] = []  # of histograms

    def by_name(self, start: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(start)]

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for group in traces.resource_spans:
                self.resources.append(_attributes(group.resource.attributes))
                for scope in group.scope_spans:
                    self.spans += map(_span, scope.spans)
        else:
            metrics = ExportMetricsServiceRequest.FromString(body)
            for resource in metrics.resource_metrics:
                for scoped in resource.scope_metrics:
                    for metric in scoped.metrics:
                        self.points += [
                            {
                                "name": metric.name,
                                "unit": metric.unit,
                                "attributes": _attributes(point.attributes),
                                "count": point.count,
                                "sum": point.sum,
                                "bounds": list(point.explicit_bounds),
                            }
                            for point in metric.histogram.data_points
                        ]


def _span(span: Any) -> dict[str, Any]:
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "state": span.trace_state,
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": (span.status.code, span.status.message),
        "attributes": _attributes(span.attributes),
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    with serving(collector):
        yield collector
