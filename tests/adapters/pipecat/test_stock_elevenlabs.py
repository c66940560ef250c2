"""Pipecat's own ElevenLabs services, by URL, on a real pipeline."""

from typing import Any

import aiohttp
import pytest
from loguru import logger
from pipecat.frames.frames import TTSAudioRawFrame
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.tts_service import TextAggregationMode

from testbed.pipecat_conversation import HEARD_SAMPLES, Conversation, talking
from testbed.servers import StartServer
from testbed.waiting import undisturbed, until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.server.serve import RunningServer

TEXT = "Of course I can. It cost $25."
PIECES = [f"{word} " for word in TEXT.split()[:-1]] + [TEXT.split()[-1]]


def service(server: RunningServer, voice: str = "default", **options: Any) -> ElevenLabsTTSService:
    """A stock service for `server`."""
    url = f"ws{server.url.removeprefix('http')}"
    settings = ElevenLabsTTSService.Settings(voice=voice)
    return ElevenLabsTTSService(api_key="none", url=url, settings=settings, **options)


async def words_of(server: RunningServer, text: str) -> list[WordTimestamp]:
    """Word times of `text` from the server."""
    async with TTSClient(server.websocket_url) as client:
        events = client.say(text, language="en", max_lead_s=0)
        return [event async for event in events if isinstance(event, WordTimestamp)]


def heard_s(conversation: Conversation, context_id: str) -> float:
    """Played seconds of a context."""
    played = [u for u in conversation.transport.utterances if u.context_id == context_id]
    return (sum(u.played_samples for u in played) - HEARD_SAMPLES) / SAMPLE_RATE_HZ


@pytest.mark.parametrize("mode", [TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN])
async def test_a_turn_is_spoken_and_committed(
    server: RunningServer, mode: TextAggregationMode
) -> None:
    """Turns are committed word for word, by sentences and by tokens, on one socket."""
    async with talking(service(server, text_aggregation_mode=mode)) as conversation:
        for text in (PIECES, ["Yes."]):
            await conversation.reply(*text)
            assert await conversation.spoken() == "".join(text)
            await conversation.played_out()
        assert not conversation.errors
        assert conversation.count(TTSAudioRawFrame) > 10
        accepted = server.state.metrics.registry.get_sample_value("tts_ws_accepted_total")
        assert accepted == 1


async def test_a_barge_in_frees_the_row(start_server: StartServer) -> None:
    """The history is within a word of what was heard; the row is free and the socket stays open."""
    server = await start_server(throttle={"rtf": 0.8})
    words = await words_of(server, TEXT)
    worker = server.state.synthesizer.supervisors["espeak"].worker
    assert worker is not None

    async def difference() -> int:
        async with talking(service(server)) as conversation:
            context_id = await conversation.reply(*PIECES)
            await conversation.play(context_id, 1.6)
            committed = await conversation.interrupt()
            assert committed and TEXT.startswith(committed)
            played = heard_s(conversation, context_id)
            began = sum(word.start_sample / SAMPLE_RATE_HZ < played for word in words)
            await until(lambda: not worker.rows_used, "the row is free")
            await conversation.reply("Yes.")
            assert await conversation.spoken() == "Yes."
            assert not conversation.errors
            return len(committed.split()) - began

    assert abs(await undisturbed(difference)) <= 1


async def test_an_unknown_voice_is_an_error_of_pipecat(server: RunningServer) -> None:
    """The service pushes an error for a turn without audio; its log has the reason of the close."""
    reasons: list[str] = []
    sink = logger.add(lambda line: reasons.append(str(line)), level="WARNING")
    async with talking(service(server, voice="nobody")) as conversation:
        await conversation.reply("Yes.")
        await until(lambda: bool(conversation.errors), "an error has come")
    logger.remove(sink)
    assert any("expected the name of a voice, got 'nobody'" in reason for reason in reasons)


async def test_the_http_service_has_words(server: RunningServer) -> None:
    """The service without a socket speaks, and commits the words that were played."""
    settings = ElevenLabsHttpTTSService.Settings(voice="default")
    async with aiohttp.ClientSession() as session:
        tts = ElevenLabsHttpTTSService(
            api_key="none", aiohttp_session=session, base_url=server.url, settings=settings
        )
        async with talking(tts) as conversation:
            await conversation.reply(*PIECES)
            assert await conversation.spoken() == TEXT
            assert not conversation.errors
