"""Spans that cost nothing without a tracer: a thin layer over OpenTelemetry's own.

There is one for each context, in the client, the server and the engine worker; it travels between
them as its W3C `traceparent`. Spans carry ids, names, counts and seconds, never text or keys. Those
of server and worker are sent to a collector over OTLP/HTTP, a client's go where its program sends
spans; a collector that is away costs spans, never a listener. The variables of OpenTelemetry's SDK
apply: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`.
"""

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from voiceagent_tts import __version__
from voiceagent_tts.core import TRACEPARENT

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

Kind = Literal["client", "server", "internal"]
Attribute = str | int | float | bool

_SCOPE = "voiceagent-tts"
_CLOSE_S = 1.0
"""Time for the last spans to leave; less than a server waits for a worker to end."""


class Span:
    """A span, or nothing without a tracer.

    Args:
        span: OpenTelemetry's span; None for nothing.
        epoch_ns: Unix time at zero of `time.monotonic()`. One for the whole span, or events that
            are close together could change places.
    """

    def __init__(self, span: "trace.Span | None" = None, epoch_ns: int = 0) -> None:
        self._span = span
        self._epoch_ns = epoch_ns

    @property
    def traceparent(self) -> str | None:
        """The span as a W3C `traceparent`; None if there is none."""
        if self._span is None:
            return None
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        context = trace.set_span_in_context(self._span)
        TraceContextTextMapPropagator().inject(carrier, context)
        return carrier.get(TRACEPARENT)

    def set(self, attributes: Mapping[str, Attribute | None]) -> None:
        """Set attributes; those that are None are left out."""
        if self._span is not None:
            known = {name: value for name, value in attributes.items() if value is not None}
            self._span.set_attributes(known)

    def event(self, name: str, at: float | None = None) -> None:
        """Add an event at a `time.monotonic()`, now by default."""
        if self._span is not None:
            moment = time.monotonic() if at is None else at
            self._span.add_event(name, timestamp=self._epoch_ns + round(moment * 1e9))

    def fail(self, code: str) -> None:
        """Mark the span as failed with a stable error code."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", code)
            self._span.set_status(Status(StatusCode.ERROR, code))

    def end(self) -> None:
        """End the span; idempotent."""
        if self._span is not None and self._span.is_recording():
            self._span.end(self._epoch_ns + time.monotonic_ns())


class Tracer:
    """Starts spans.

    Args:
        tracer: OpenTelemetry's tracer; None to trace nothing.
    """

    def __init__(self, tracer: "trace.Tracer | None" = None) -> None:
        self._tracer = tracer

    def start(self, name: str, kind: Kind, parent: str | None = None) -> Span:
        """Start a span.

        Args:
            name: what it is.
            kind: its place between processes.
            parent: `traceparent` of the span that it belongs to. Without one, or with one that is
                malformed, the current span of this program, if there is one.
        """
        if self._tracer is None:
            return Span()
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = None
        if parent is not None:
            context = TraceContextTextMapPropagator().extract({TRACEPARENT: parent})
        now_ns = time.monotonic_ns()
        epoch_ns = time.time_ns() - now_ns
        span = self._tracer.start_span(
            name, context, SpanKind[kind.upper()], start_time=epoch_ns + now_ns
        )
        return Span(span, epoch_ns)


def exports_traces() -> bool:
    """Whether the environment names a collector, in the variables of OpenTelemetry's SDK.

    They are read here and not by `config`, which a worker would load for them alone: half of the
    time in which it starts.
    """
    return any(
        os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") for name in ("ENDPOINT", "TRACES_ENDPOINT")
    )


def host_tracer() -> Tracer:
    """The tracer of the program that uses this package; it decides whether and where to export."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return Tracer()
    return Tracer(trace.get_tracer(_SCOPE, __version__))


class Exporter:
    """Exports the spans of this process until `close`."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self.tracer = Tracer(provider.get_tracer(_SCOPE, __version__))
        """Starts the spans."""

    def close(self) -> None:
        """Send what waits, for one second at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)


def start_exporter() -> Exporter | None:
    """Start to export spans if the environment names a collector."""
    return Exporter(_make_provider()) if exports_traces() else None


def _make_provider() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource({"service.name": "voiceagent-tts", "service.version": __version__})
    resource = named.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
