"""Sends spans to an OpenTelemetry collector over OTLP/HTTP, from a thread of its own.

The variables of OpenTelemetry's SDK apply: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER`. A collector that is away costs spans, never a listener.
"""

import threading
from typing import TYPE_CHECKING

from voiceagent_tts import __version__
from voiceagent_tts.tracing.spans import Tracer, exports_traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_CLOSE_S = 1.0
"""Time for the last spans to leave; less than a server waits for a worker to end."""


class Exporter:
    """Exports the spans of this process until `close`."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self.tracer = Tracer(provider.get_tracer("voiceagent-tts", __version__))
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
