"""LiveKit's own tests of TTS plugins, run without its cloud: frames, metrics and retries."""

import asyncio

import pytest
from livekit.agents import APIConnectionError, APIConnectOptions, APITimeoutError, tts
from livekit.agents.metrics import TTSMetrics

from testbed.livekit_audio import MakeVoice, check_frames
from testbed.proxy import black_hole
from testbed.server_process import ServerProcess
from testbed.waiting import PATIENCE_S

TEXT = "I checked your booking. The train leaves at nine, and your seat is by the window."


class Watch:
    """What a TTS reports."""

    def __init__(self, voice: tts.TTS) -> None:
        self.metrics: list[TTSMetrics] = []
        self.errors: list[tts.TTSError] = []
        voice.on("metrics_collected", self.metrics.append)
        voice.on("error", self.errors.append)


async def test_synthesize(served: ServerProcess, make_voice: MakeVoice) -> None:
    """A whole text yields audio with one request and one metrics report."""
    voice = make_voice(served)
    watch = Watch(voice)
    async with voice.synthesize(TEXT) as stream:
        events = [event async for event in stream]
    check_frames(events)
    (report,) = watch.metrics
    assert report.characters_count == len(TEXT) and not report.streamed
    seconds = sum(event.frame.duration for event in events)
    assert report.audio_duration == pytest.approx(seconds)
    assert report.request_id == events[0].request_id
    assert report.metadata is not None
    assert report.metadata.model_provider == "voiceagent-tts"
    assert (report.metadata.model_name or "").startswith("espeak")


async def test_stream(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Text at the pace of a language model yields one segment and one metrics report."""
    voice = make_voice(served)
    watch = Watch(voice)
    async with voice.stream() as stream:

        async def write() -> None:
            for word in TEXT.split(" "):
                stream.push_text(word + " ")
                await asyncio.sleep(1 / 30)
            stream.flush()
            stream.end_input()

        writing = asyncio.create_task(write())
        events = [event async for event in stream]
        await writing
    check_frames(events)
    assert events[0].segment_id
    (report,) = watch.metrics
    assert report.streamed and not report.cancelled
    assert report.segment_id == events[0].segment_id


async def test_a_flush_speaks_what_is_there(served: ServerProcess, make_voice: MakeVoice) -> None:
    """A flush speaks text without the end of a sentence or of the input."""
    voice = make_voice(served, max_buffer_delay_ms=3000)
    async with voice.stream() as stream:
        stream.push_text("And then")
        stream.flush()
        assert (await anext(stream)).frame.duration > 0
        stream.end_input()
        assert [event.is_final async for event in stream][-1]


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_retries_in_a_black_hole(make_voice: MakeVoice, is_streamed: bool) -> None:
    """Each attempt reports an error; the last one is marked as unrecoverable."""
    async with black_hole() as url:
        voice = make_voice(url)
        watch = Watch(voice)
        options = APIConnectOptions(max_retry=3, timeout=0.3, retry_interval=0.0)
        with pytest.raises(APITimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                if is_streamed:
                    async with voice.stream(conn_options=options) as stream:
                        stream.push_text(TEXT)
                        stream.end_input()
                        await anext(stream)
                else:
                    await voice.synthesize(TEXT, conn_options=options).collect()
        assert [error.recoverable for error in watch.errors] == [True, True, True, False]
        assert not watch.metrics


async def test_a_server_that_is_not_there(make_voice: MakeVoice) -> None:
    """A refused connection is reported at once, so that a fallback can take over."""
    voice = make_voice("ws://127.0.0.1:9")
    with pytest.raises(APIConnectionError) as raised:
        await voice.synthesize(TEXT, conn_options=APIConnectOptions(max_retry=0)).collect()
    assert not isinstance(raised.value, APITimeoutError)
    assert raised.value.retryable
    assert "no server at 127.0.0.1:9; start one with" in str(raised.value)
