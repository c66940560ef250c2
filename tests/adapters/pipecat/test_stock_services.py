"""Pipecat's own services for other providers, by URL, on a real pipeline."""

from collections.abc import Callable
from typing import Any

import aiohttp
import openai
import pytest
from loguru import logger
from pipecat.frames.frames import TTSAudioRawFrame
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TextAggregationMode, TTSService

from testbed.listening import words_of
from testbed.pipecat_conversation import Conversation, Passing, reply, talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, metric_value, worker_of
from testbed.waiting import undisturbed, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, ms_to_samples
from voiceagent_tts.server.serve import RunningServer

TEXT = "Of course I can. It cost $25."
PIECES = [f"{word} " for word in TEXT.split()[:-1]] + [TEXT.split()[-1]]

Server = RunningServer | ServerProcess


def cartesia(server: Server, voice: str | None = None, **options: Any) -> CartesiaTTSService:
    """Cartesia's service for `server`."""
    url = f"ws{server.url.removeprefix('http')}/tts/websocket"
    settings = CartesiaTTSService.Settings(voice=voice)
    return CartesiaTTSService(api_key="none", url=url, settings=settings, **options)


def elevenlabs(server: Server, voice: str = "default", **options: Any) -> ElevenLabsTTSService:
    """ElevenLabs' service for `server`."""
    url = f"ws{server.url.removeprefix('http')}"
    settings = ElevenLabsTTSService.Settings(voice=voice)
    return ElevenLabsTTSService(api_key="none", url=url, settings=settings, **options)


with_words = pytest.mark.parametrize("service", [cartesia, elevenlabs])


def seconds_of(talk: Conversation) -> float:
    """Length of what was played."""
    return len(talk.loudspeaker.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


@with_words
@pytest.mark.parametrize("mode", list(TextAggregationMode))
async def test_a_turn_is_spoken_and_committed(
    server: RunningServer, service: Callable[..., TTSService], mode: TextAggregationMode
) -> None:
    """Turns are committed word for word, by sentences and by tokens, on one socket."""
    async with talking(service(server, text_aggregation_mode=mode)) as talk:
        for text in (PIECES, ["Yes."]):
            assert await talk.spoken(*text) == "".join(text)
            await talk.loudspeaker.is_silent.wait()
        assert not talk.errors and seconds_of(talk) > 1.0
        assert metric_value(server, "tts_ws_accepted_total") == 1


@with_words
async def test_a_barge_in_frees_the_row(
    start_server: StartServer, service: Callable[..., TTSService]
) -> None:
    """The history is within a word of what was heard; the row is free and the socket stays open."""
    server = await start_server(throttle={"rtf": 0.8})
    words = await words_of(server.websocket_url, TEXT, language="en")

    async def difference() -> int:
        async with talking(service(server)) as talk:
            await talk.push(*reply(*PIECES))
            await talk.played(1.6)
            committed = await talk.interrupt()
            assert committed and TEXT.startswith(committed)
            heard_samples = talk.loudspeaker.played_samples[-1] - ms_to_samples(20)
            began = sum(word.start_sample < heard_samples for word in words)
            await until(lambda: not worker_of(server).rows_used, "the row is free")
            assert await talk.spoken("Yes.") == "Yes."
            assert not talk.errors
            return len(committed.split()) - began

    assert abs(await undisturbed(difference, holds=lambda words: abs(words) <= 1)) <= 1


@with_words
async def test_an_unknown_voice_is_an_error(
    served: ServerProcess, service: Callable[..., TTSService]
) -> None:
    """That of Cartesia's service names the voice; of ElevenLabs', the log has the reason."""
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    async with talking(service(served, voice="nobody")) as talk:
        await talk.push(*reply("Yes."))
        await until(lambda: bool(talk.errors), "an error has come")
        # Pipecat logs the close once the connection has ended, and may miss the audio before.
        await until(lambda: any("nobody" in line for line in lines), "the log has the reason")
    logger.remove(sink)
    assert service is elevenlabs or "nobody" in talk.errors[0].error


async def test_a_pronunciation_is_said_and_the_history_has_the_word(served: ServerProcess) -> None:
    """Pipecat puts Cartesia's phones in place of the word, and the word back into the history."""
    transform = CartesiaTTSService.pronunciation_transform_ipa({"Metformin": "mɛtˈfɔɹmɪn"})
    async with talking(cartesia(served, text_transforms=[("*", transform)])) as talk:
        assert await talk.spoken("Take ", "Metformin ", "now.") == "Take Metformin now."
        assert seconds_of(talk) < 2.5, "the phones are read aloud"


@pytest.mark.parametrize(
    "rate_hz", [8000, 22_050, pytest.param(44_100, marks=pytest.mark.thorough)]
)
async def test_the_service_has_its_rate(served: ServerProcess, rate_hz: int) -> None:
    """The audio has the requested rate and an equal duration at every rate."""
    words = await words_of(served.websocket_url, "Yes, of course.", language="en")
    end = words[-1].end_sample
    assert end is not None
    passing = Passing()
    async with talking(cartesia(served, sample_rate=rate_hz), between=[passing]) as talk:
        assert await talk.spoken("Yes, of course.") == "Yes, of course."
        await talk.loudspeaker.is_silent.wait()
    audio = [frame for frame in passing.frames if isinstance(frame, TTSAudioRawFrame)]
    assert {frame.sample_rate for frame in audio} == {rate_hz}
    seconds = sum(len(frame.audio) for frame in audio) / BYTES_PER_SAMPLE / rate_hz
    assert seconds == pytest.approx(end / SAMPLE_RATE_HZ, abs=0.5)


async def test_the_http_service_has_words(served: ServerProcess) -> None:
    """ElevenLabs' service without a socket speaks, and commits the words that were played."""
    settings = ElevenLabsHttpTTSService.Settings(voice="default")
    async with aiohttp.ClientSession() as session:
        tts = ElevenLabsHttpTTSService(
            api_key="none", aiohttp_session=session, base_url=served.url, settings=settings
        )
        async with talking(tts) as talk:
            assert await talk.spoken(*PIECES) == TEXT
            assert not talk.errors


@pytest.mark.parametrize("text", ["\U0001f44d", "..."])
async def test_a_reply_without_speech_is_no_error_of_openais(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is committed, and the next reply is spoken."""
    async with openai.AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client:
        service = OpenAITTSService(
            api_key="none", settings=OpenAITTSService.Settings(voice="alloy")
        )
        monkeypatch.setattr(service, "_client", client)  # it never closes its own one
        async with talking(service) as talk:
            for each in (text, "Yes, I can."):
                assert await talk.spoken(each) == each
                await talk.loudspeaker.is_silent.wait()
            assert not talk.errors
