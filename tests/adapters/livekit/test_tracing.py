"""The plugin in LiveKit's own traces."""

import pytest
from livekit.agents import telemetry
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from testbed.livekit_conversation import MakeVoice, ended, talking
from testbed.servers import StartServer
from testbed.waiting import until
from voiceagent_tts.adapters.livekit import TTS

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What LiveKit's tracer exports within the test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry.tracer, "_tracer", provider.get_tracer("livekit-agents"))
    return exporter


def requests(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """LiveKit's spans of speech that have ended."""
    return [span for span in exporter.get_finished_spans() if span.name == "tts_request"]


@pytest.fixture
async def voice(start_server: StartServer, make_voice: MakeVoice) -> TTS:
    """A voice whose server makes a reply while it plays."""
    return make_voice(await start_server(throttle={"rtf": 0.3}))


async def test_a_request_ends_when_its_speech_is_made(
    traced: InMemorySpanExporter, voice: TTS
) -> None:
    """While playback is paused: a span that ended with playback would not end at all."""
    async with talking(voice) as conversation:
        output = conversation.session.output.audio
        assert output is not None
        handle = conversation.reply(COUNTING)
        await conversation.played(0.2)
        output.pause()
        await until(lambda: bool(requests(traced)), "the request has ended")
        assert not handle.done()
        output.resume()
        assert await ended(handle) == COUNTING
        assert len(requests(traced)) == 1


async def test_an_interrupted_request_ends(traced: InMemorySpanExporter, voice: TTS) -> None:
    """With its reply, whose speech nobody makes any more; it says how much was made."""
    async with talking(voice) as conversation:
        await conversation.cut(0.3, COUNTING * 5)
        await until(lambda: bool(requests(traced)), "the request has ended")
        (request,) = requests(traced)
        assert "lk.tts_metrics" in (request.attributes or {})
