"""Fixtures: a receiver of traces, and a program around the client that traces."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from testbed.http_server import answering
from testbed.otlp_receiver import OtlpReceiver
from voiceagent_tts.tracing import Tracer


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """A receiver to which the servers and workers of this test export at once."""
    with answering(OtlpReceiver()) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield receiver


@pytest.fixture
def host(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> trace.Tracer:
    """The tracer of a program that uses the client, and exports its own spans."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("host")
    monkeypatch.setattr("voiceagent_tts.client.spans.host_tracer", lambda: Tracer(tracer))
    return tracer
