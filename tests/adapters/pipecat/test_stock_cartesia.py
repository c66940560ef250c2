"""Pipecat's own Cartesia service, by URL, on a real pipeline."""

from typing import Any

import pytest
from pipecat.frames.frames import TTSAudioRawFrame
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.tts_service import TextAggregationMode

from testbed.listening import words_of
from testbed.pipecat_conversation import talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.stock_pipecat import check_barge_in, check_turns
from testbed.waiting import until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.server.serve import RunningServer


def service(
    server: RunningServer | ServerProcess, voice: str | None = None, **options: Any
) -> CartesiaTTSService:
    """A stock service for `server`."""
    url = f"ws{server.url.removeprefix('http')}/tts/websocket"
    settings = CartesiaTTSService.Settings(voice=voice)
    return CartesiaTTSService(api_key="none", url=url, settings=settings, **options)


@pytest.mark.parametrize("mode", [TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN])
async def test_a_turn_is_spoken_and_committed(
    server: RunningServer, mode: TextAggregationMode
) -> None:
    """Turns are committed word for word, by sentences and by tokens, on one socket."""
    await check_turns(service(server, text_aggregation_mode=mode), server)


async def test_a_pronunciation_is_said_and_the_history_has_the_word(served: ServerProcess) -> None:
    """Pipecat puts Cartesia's phones in place of the word, and the word back into the history."""
    transform = CartesiaTTSService.pronunciation_transform_ipa({"Metformin": "mɛtˈfɔɹmɪn"})
    async with talking(service(served, text_transforms=[("*", transform)])) as conversation:
        await conversation.reply("Take ", "Metformin ", "now.")
        assert await conversation.spoken() == "Take Metformin now."
        frames = [each for each in conversation.frames if isinstance(each, TTSAudioRawFrame)]
        seconds = sum(len(frame.audio) for frame in frames) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
        assert seconds < 2.5, "the phones are read aloud"


async def test_a_barge_in_frees_the_row(start_server: StartServer) -> None:
    """The history is within a word of what was heard; the row is free and the socket stays open."""
    server = await start_server(throttle={"rtf": 0.8})
    await check_barge_in(lambda: service(server), server)


async def test_an_unknown_voice_is_an_error_of_pipecat(served: ServerProcess) -> None:
    """The service pushes an error that names the known voices, and continues to read."""
    async with talking(service(served, voice="nobody")) as conversation:
        await conversation.reply("Yes.")
        await until(lambda: bool(conversation.errors), "an error has come")
        assert "nobody" in conversation.errors[0].error


@pytest.mark.parametrize(
    "rate_hz", [8000, 22_050, pytest.param(44_100, marks=pytest.mark.thorough)]
)
async def test_the_service_has_its_rate(served: ServerProcess, rate_hz: int) -> None:
    """The audio has the requested rate and an equal duration at every rate."""
    words = await words_of(served.websocket_url, "Yes, of course.", language="en")
    end = words[-1].end_sample
    assert end is not None
    async with talking(service(served, sample_rate=rate_hz)) as conversation:
        await conversation.reply("Yes, of course.")
        await conversation.spoken()
        frames = [f for f in conversation.frames if isinstance(f, TTSAudioRawFrame)]
        assert {frame.sample_rate for frame in frames} == {rate_hz}
        seconds = sum(len(frame.audio) for frame in frames) / BYTES_PER_SAMPLE / rate_hz
        assert seconds == pytest.approx(end / SAMPLE_RATE_HZ, abs=0.5)
