"""Both adapters in the traces of their hosts, up to a real receiver."""

import aiohttp
import pytest
from opentelemetry import trace
from pipecat.services.tts_service import TextAggregationMode

from testbed.otlp_receiver import OtlpReceiver
from testbed.pipecat_conversation import talking
from testbed.servers import StartServer
from testbed.tracing_fixtures import host, receiver
from testbed.waiting import until
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService

__all__ = ["host", "receiver"]

SECRET = "Xylophone"


@pytest.mark.parametrize("mode", [None, TextAggregationMode.TOKEN])
async def test_the_span_has_the_text_as_it_was_written(
    receiver: OtlpReceiver,
    host: trace.Tracer,
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
    mode: TextAggregationMode | None,
) -> None:
    """With its own white space, however it came in pieces."""
    monkeypatch.setattr(trace, "get_tracer", lambda *_: host)
    server = await start_server()
    service = VoiceAgentTTSService(
        url=server.websocket_url, voice="default", language="en", text_aggregation_mode=mode
    )
    text = "Hello there, you. How are you today? Fine,\n\nthank you."
    async with talking(service, enable_tracing=True) as talk:
        await talk.spoken(*text.partition("are"))
    await until(lambda: bool(receiver.named("tts")), "Pipecat's span")
    assert [span.attributes["text"] for span in receiver.named("tts")] == [text]


async def test_both_adapters_continue_the_trace_of_their_host(
    receiver: OtlpReceiver,
    host: trace.Tracer,
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reply of LiveKit's plugin and one of Pipecat's service reach the server in a trace."""
    monkeypatch.setattr(trace, "get_tracer", lambda *_: host)  # of Pipecat's turns
    server = await start_server()
    async with aiohttp.ClientSession() as session:
        voice = TTS(url=server.websocket_url, voice="default", language="en", http_session=session)
        with host.start_as_current_span("livekit turn"):
            async for _ in voice.synthesize(SECRET):
                pass
        await voice.aclose()
    service = VoiceAgentTTSService(url=server.websocket_url, voice="default", language="en")
    async with talking(service, enable_tracing=True) as talk:
        await talk.spoken(SECRET)
    await until(lambda: len(receiver.named("tts.context")) == 2, "both contexts")
    await until(lambda: len(receiver.named("tts.request")) == 2, "both requests")
    requests = {span.span_id: span for span in receiver.named("tts.request")}
    contexts = receiver.named("tts.context")
    assert {span.parent_id for span in contexts} == set(requests)
    await until(lambda: bool(receiver.named("turn")), "Pipecat's turn has ended")
    turns = receiver.named("livekit turn") + receiver.named("turn")
    assert {span.parent_id for span in requests.values()} == {turn.span_id for turn in turns}
    ours = [*requests.values(), *contexts]  # Pipecat's own spans have texts
    assert not any(SECRET in f"{span.attributes} {span.events}" for span in ours)
