"""One trace from the program around a client, through server and worker, into a real receiver."""

import contextlib
import os
import socket
import time
from typing import cast

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from testbed.otlp_receiver import OtlpReceiver, ReceivedSpan
from testbed.server_process import serving
from testbed.servers import StartServer
from testbed.waiting import until
from voiceagent_tts import tracing as spans
from voiceagent_tts.client import DoneMessage, TTSClient
from voiceagent_tts.client.spans import ClientSpans
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.tracing import Span, Tracer

SECRET = "Xylophone"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def only(receiver: OtlpReceiver, name: str) -> ReceivedSpan:
    await until(lambda: bool(receiver.named(name)), f"a span {name}")
    (span,) = receiver.named(name)
    return span


async def test_a_turn_is_one_trace_through_all_processes(
    receiver: OtlpReceiver, host: trace.Tracer
) -> None:
    """Host, client, server and worker: each span is a child of the one before, with its events."""
    with serving() as server:
        async with TTSClient(server.websocket_url) as client:
            with host.start_as_current_span("turn"):
                context = await client.open(voice="nova", language="en")
            await context.send_text(f"{SECRET} players are rare. ")
            await context.end()
            async for _ in context:
                pass
        chain = [
            await only(receiver, name)
            for name in ("turn", "tts.request", "tts.context", "tts.engine")
        ]
    assert len({span.trace_id for span in chain}) == 1
    assert [span.parent_id for span in chain] == ["", *(span.span_id for span in chain[:-1])]
    _, request, on_server, engine = chain
    assert [name for name, _ in request.events] == ["first_audio_received"]
    assert [name for name, _ in on_server.events] == [
        "admitted", "first_text", "first_segment", "first_codec_frame", "first_audio_sent",
    ]  # fmt: skip
    assert [name for name, _ in engine.events] == ["first_codec_frame"]
    for span in (on_server, engine):
        times = [span.start_ns, *(at for _, at in span.events), span.end_ns]
        assert times == sorted(times)
    assert on_server.attributes["gen_ai.output.type"] == "speech"
    assert on_server.attributes["tts.reason"] == "complete"
    assert on_server.attributes["tts.chars"] == len(f"{SECRET} players are rare. ")
    assert on_server.attributes["tts.context_id"] == context.context_id
    assert engine.attributes["tts.engine"] == "espeak"
    assert engine.attributes["tts.audio_s"] > 0.5  # type: ignore[operator]
    assert not any(SECRET.encode() in body for body in receiver.bodies)


async def test_a_cancel_is_an_event_of_every_span(
    receiver: OtlpReceiver, host: trace.Tracer, start_server: StartServer
) -> None:
    """A barge-in shows where it was received, where its row was freed, and at the client."""
    server = await start_server()
    async with TTSClient(server.websocket_url) as client:
        context = await client.open(language="en", max_lead_s=0.3)
        await context.send_text(f"{SECRET} players are rare. " * 40)
        await anext(aiter(context))
        await context.cancel()
        on_server = await only(receiver, "tts.context")
        engine = await only(receiver, "tts.engine")
        request = await only(receiver, "tts.request")
    assert on_server.attributes["tts.reason"] == "cancelled"
    assert "cancel_received" in [name for name, _ in on_server.events]
    assert "aborted" in [name for name, _ in engine.events]
    assert "cancelled" in [name for name, _ in request.events]


async def test_a_context_that_is_not_opened_ends_its_span(
    receiver: OtlpReceiver, host: trace.Tracer, start_server: StartServer
) -> None:
    """The span says why, and that of the context which has the id lives on."""
    server = await start_server()
    async with TTSClient(server.websocket_url) as client:
        context = await client.open(context_id="a", language="en")
        with pytest.raises(InvalidRequestError):
            await client.open(context_id="a")
        with pytest.raises(InvalidRequestError):
            await client.open(context_id="b", speed=9.0)
        await context.send_text("Yes.")
        await context.end()
        assert [event async for event in context]
        await until(lambda: len(receiver.named("tts.request")) == 3, "all spans have ended")
    ends = {span.error: span.attributes["tts.reason"] for span in receiver.named("tts.request")}
    assert ends == {"context_exists": "error", "invalid_param": "error", "": "complete"}


@pytest.mark.parametrize(("chars", "is_legal"), [(1_016, True), (1_017, False)])
async def test_tracing_takes_no_room_of_the_metadata(
    host: trace.Tracer, start_server: StartServer, chars: int, is_legal: bool
) -> None:
    """What a client and its server accept without traces, they accept with traces."""
    server = await start_server()
    fits = contextlib.nullcontext() if is_legal else pytest.raises(InvalidRequestError)
    for traced in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not traced:
                patch.setattr("voiceagent_tts.client.spans.host_tracer", Tracer)
            async with TTSClient(server.websocket_url) as client:
                with fits:
                    context = await client.open(language="en", metadata={"a": "x" * chars})
                    await context.end()
                    assert isinstance([event async for event in context][-1], DoneMessage)


async def test_metadata_of_another_type_is_refused_with_traces_too(
    receiver: OtlpReceiver, host: trace.Tracer, start_server: StartServer
) -> None:
    """By the code that every mistake of a client has, which its span has, too."""
    server, wrong = await start_server(), cast("dict[str, int]", [1])
    async with TTSClient(server.websocket_url) as client:
        with pytest.raises(InvalidRequestError, match="metadata"):
            await client.open(language="en", metadata=wrong)
    assert (await only(receiver, "tts.request")).error == "invalid_param"


async def test_a_request_over_http_continues_the_trace_of_its_header(
    receiver: OtlpReceiver, start_server: StartServer
) -> None:
    """`traceparent` of the request is the parent; a refused one has its code, and no text."""
    server = await start_server()
    async with httpx.AsyncClient(base_url=server.url, headers={"traceparent": PARENT}) as http:
        body = {"input": SECRET, "voice": "nobody"}
        assert (await http.post("/v1/audio/speech", json=body)).status_code == 400
        refused = await only(receiver, "tts.context")
    _, trace_id, parent_id, _ = PARENT.split("-")
    assert (refused.trace_id, refused.parent_id) == (trace_id, parent_id)
    assert refused.error == refused.attributes["error.type"] == "invalid_voice"
    assert not any(SECRET.encode() in body for body in receiver.bodies)


@pytest.mark.parametrize("given", ["", "no trace", "00-0-0-00", PARENT + "\0", "x" * 100_000])
def test_a_malformed_parent_starts_a_trace_of_its_own(given: str) -> None:
    """What a client sends as `traceparent` cannot break anything."""
    tracer = Tracer(TracerProvider(shutdown_on_exit=False).get_tracer("test"))
    span = tracer.start("tts.context", "server", given)
    assert span.traceparent is not None
    assert PARENT.split("-")[1] not in span.traceparent
    span.end()


async def test_a_collector_that_is_away_delays_nothing(
    monkeypatch: pytest.MonkeyPatch, start_server: StartServer, free_port: int
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", free_port))
        silent.listen()  # accepts, and never answers
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port}")
        server = await start_server()
        async with TTSClient(server.websocket_url) as client:
            events = [event async for event in client.say("Hello.", language="en")]
        assert events
        assert server.state.synthesizer.contexts_active == 0


async def test_events_keep_the_order_of_their_moments(
    receiver: OtlpReceiver, host: trace.Tracer
) -> None:
    """However close together they are, and whatever passes between two looks at a clock."""
    span = Tracer(host).start("close", "internal")
    moments = [time.monotonic() + number * 1e-6 for number in range(100)]
    for number, moment in enumerate(moments):
        span.event(str(number), moment)
    span.end()
    exported = await only(receiver, "close")
    times = [at for _, at in exported.events]
    assert times == sorted(times)
    assert exported.start_ns <= times[0]


def test_nothing_is_traced_by_default() -> None:
    """Without a collector there is no span, and the metadata of a client stays as it is."""
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ
    assert Tracer().start("x", "server").traceparent is None
    for metadata in ({"a": 1}, None):
        with ClientSpans().opening("c", metadata) as traced:
            assert traced == metadata
    spans.Span().fail("internal")
    Span().end()
