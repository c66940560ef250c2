"""Pipecat's own services for other providers, by URL, on a real pipeline."""

from collections.abc import Callable, Iterator
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
from testbed.pipecat_conversation import HEARD_SAMPLES, Conversation, speaks, talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, metric_value, worker_of
from testbed.waiting import undisturbed, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
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


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Lines of Pipecat's log, from WARNING on."""
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    yield lines
    logger.remove(sink)


def seconds_of(conversation: Conversation, rate_hz: int = SAMPLE_RATE_HZ) -> float:
    """Length of the audio that has left the service, all of it at this rate."""
    frames = [frame for frame in conversation.frames if isinstance(frame, TTSAudioRawFrame)]
    assert {frame.sample_rate for frame in frames} == {rate_hz}
    return sum(len(frame.audio) for frame in frames) / BYTES_PER_SAMPLE / rate_hz


@with_words
@pytest.mark.parametrize("mode", [TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN])
async def test_a_turn_is_spoken_and_committed(
    server: RunningServer, service: Callable[..., TTSService], mode: TextAggregationMode
) -> None:
    """Turns are committed word for word, by sentences and by tokens, on one socket."""
    async with talking(service(server, text_aggregation_mode=mode)) as conversation:
        for text in (PIECES, ["Yes."]):
            await conversation.reply(*text)
            assert await conversation.spoken() == "".join(text)
            await conversation.played_out()
        assert not conversation.errors
        assert conversation.count(TTSAudioRawFrame) > 10
        assert metric_value(server, "tts_ws_accepted_total") == 1


@with_words
async def test_a_barge_in_frees_the_row(
    start_server: StartServer, service: Callable[..., TTSService]
) -> None:
    """The history is within a word of what was heard; the row is free and the socket stays open."""
    server = await start_server(throttle={"rtf": 0.8})
    words = await words_of(server.websocket_url, TEXT, language="en")

    async def difference() -> int:
        async with talking(service(server)) as conversation:
            context_id = await conversation.reply(*PIECES)
            await conversation.play(context_id, 1.6)
            committed = await conversation.interrupt()
            assert committed and TEXT.startswith(committed)
            heard_samples = conversation.played_samples(context_id) - HEARD_SAMPLES
            began = sum(word.start_sample < heard_samples for word in words)
            await until(lambda: not worker_of(server).rows_used, "the row is free")
            await speaks(conversation, "Yes.")
            assert not conversation.errors
            return len(committed.split()) - began

    assert abs(await undisturbed(difference, holds=lambda words: abs(words) <= 1)) <= 1


async def test_an_unknown_voice_is_an_error_of_cartesias(served: ServerProcess) -> None:
    """The service pushes an error that names the voice."""
    async with talking(cartesia(served, voice="nobody")) as conversation:
        await conversation.reply("Yes.")
        await until(lambda: bool(conversation.errors), "an error has come")
        assert "nobody" in conversation.errors[0].error


async def test_an_unknown_voice_is_an_error_of_elevenlabs(
    served: ServerProcess, warnings: list[str]
) -> None:
    """The service pushes an error for a turn without audio; its log has the reason of the close."""
    reason = "expected the name of a voice, got 'nobody'"
    async with talking(elevenlabs(served, voice="nobody")) as conversation:
        await conversation.reply("Yes.")
        await until(lambda: bool(conversation.errors), "an error has come")
        # Pipecat logs the close once the connection has ended, and may miss the audio before.
        await until(lambda: any(reason in line for line in warnings), "the log has the reason")


async def test_a_pronunciation_is_said_and_the_history_has_the_word(served: ServerProcess) -> None:
    """Pipecat puts Cartesia's phones in place of the word, and the word back into the history."""
    transform = CartesiaTTSService.pronunciation_transform_ipa({"Metformin": "mɛtˈfɔɹmɪn"})
    async with talking(cartesia(served, text_transforms=[("*", transform)])) as conversation:
        await conversation.reply("Take ", "Metformin ", "now.")
        assert await conversation.spoken() == "Take Metformin now."
        assert seconds_of(conversation) < 2.5, "the phones are read aloud"


@pytest.mark.parametrize(
    "rate_hz", [8000, 22_050, pytest.param(44_100, marks=pytest.mark.thorough)]
)
async def test_the_service_has_its_rate(served: ServerProcess, rate_hz: int) -> None:
    """The audio has the requested rate and an equal duration at every rate."""
    words = await words_of(served.websocket_url, "Yes, of course.", language="en")
    end = words[-1].end_sample
    assert end is not None
    async with talking(cartesia(served, sample_rate=rate_hz)) as conversation:
        await speaks(conversation, "Yes, of course.")
        assert seconds_of(conversation, rate_hz) == pytest.approx(end / SAMPLE_RATE_HZ, abs=0.5)


async def test_the_http_service_has_words(served: ServerProcess) -> None:
    """ElevenLabs' service without a socket speaks, and commits the words that were played."""
    settings = ElevenLabsHttpTTSService.Settings(voice="default")
    async with aiohttp.ClientSession() as session:
        tts = ElevenLabsHttpTTSService(
            api_key="none", aiohttp_session=session, base_url=served.url, settings=settings
        )
        async with talking(tts) as conversation:
            await conversation.reply(*PIECES)
            assert await conversation.spoken() == TEXT
            assert not conversation.errors


@pytest.mark.parametrize("text", ["\U0001f44d", "...", "&nbsp;"])
async def test_a_reply_without_speech_is_no_error_of_openais(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is committed, and the next reply is spoken."""
    async with openai.AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client:
        service = OpenAITTSService(
            api_key="none", settings=OpenAITTSService.Settings(voice="alloy")
        )
        monkeypatch.setattr(service, "_client", client)  # it never closes its own one
        async with talking(service) as conversation:
            await speaks(conversation, text)
            await speaks(conversation)
            assert not conversation.errors
