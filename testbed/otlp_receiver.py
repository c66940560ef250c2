"""A receiver of OTLP over HTTP, which decodes what exporters send and keeps the spans."""

import gzip
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from testbed.http_server import Receiver


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as a collector sees it; ids are hexadecimal, and times are nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str | int | float | bool]
    events: list[tuple[str, int]]
    start_ns: int
    end_ns: int
    error: str


class OtlpReceiver(Receiver):
    """What has arrived so far."""

    @property
    def bodies(self) -> list[bytes]:
        assert {path for path, *_ in self.got} <= {"/v1/traces"}
        return [
            gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
            for _, headers, body in self.got
        ]

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        body = ExportTraceServiceResponse().SerializeToString()
        return 200, {"Content-Type": "application/x-protobuf"}, body

    def spans(self) -> list[ReceivedSpan]:
        requests = (ExportTraceServiceRequest.FromString(body) for body in self.bodies)
        return [
            _read(span)
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans() if span.name == name]


def _read(span: ProtoSpan) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {each.key: _value(each.value) for each in span.attributes},
        [(event.name, event.time_unix_nano) for event in span.events],
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.message,
    )


def _value(value: object) -> str | int | float | bool:
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    return getattr(value, kind)
