"""Pipecat's own ElevenLabs services, by URL, on a real pipeline."""

from typing import Any

import aiohttp
import pytest
from loguru import logger
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.tts_service import TextAggregationMode

from testbed.pipecat_conversation import talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.stock_pipecat import PIECES, TEXT, check_barge_in, check_turns
from testbed.waiting import until
from voiceagent_tts.server.serve import RunningServer


def service(
    server: RunningServer | ServerProcess, voice: str = "default", **options: Any
) -> ElevenLabsTTSService:
    """A stock service for `server`."""
    url = f"ws{server.url.removeprefix('http')}"
    settings = ElevenLabsTTSService.Settings(voice=voice)
    return ElevenLabsTTSService(api_key="none", url=url, settings=settings, **options)


@pytest.mark.parametrize("mode", [TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN])
async def test_a_turn_is_spoken_and_committed(
    server: RunningServer, mode: TextAggregationMode
) -> None:
    """Turns are committed word for word, by sentences and by tokens, on one socket."""
    await check_turns(service(server, text_aggregation_mode=mode), server)


async def test_a_barge_in_frees_the_row(start_server: StartServer) -> None:
    """The history is within a word of what was heard; the row is free and the socket stays open."""
    server = await start_server(throttle={"rtf": 0.8})
    await check_barge_in(lambda: service(server), server)


async def test_an_unknown_voice_is_an_error_of_pipecat(served: ServerProcess) -> None:
    """The service pushes an error for a turn without audio; its log has the reason of the close."""
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level="WARNING")
    reason = "expected the name of a voice, got 'nobody'"
    try:
        async with talking(service(served, voice="nobody")) as conversation:
            await conversation.reply("Yes.")
            await until(lambda: bool(conversation.errors), "an error has come")
            # Pipecat logs the close once the connection has ended, and may miss the audio before.
            await until(lambda: any(reason in line for line in lines), "the log has the reason")
    finally:
        logger.remove(sink)


async def test_the_http_service_has_words(served: ServerProcess) -> None:
    """The service without a socket speaks, and commits the words that were played."""
    settings = ElevenLabsHttpTTSService.Settings(voice="default")
    async with aiohttp.ClientSession() as session:
        tts = ElevenLabsHttpTTSService(
            api_key="none", aiohttp_session=session, base_url=served.url, settings=settings
        )
        async with talking(tts) as conversation:
            await conversation.reply(*PIECES)
            assert await conversation.spoken() == TEXT
            assert not conversation.errors
