"""Pipecat's own Cartesia service, by URL, on a real pipeline."""

from typing import Any

import pytest
from pipecat.frames.frames import TTSAudioRawFrame
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.tts_service import TextAggregationMode

from testbed.pipecat_conversation import HEARD_SAMPLES, Conversation, talking
from testbed.servers import StartServer
from testbed.waiting import undisturbed, until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.server.serve import RunningServer

TEXT = "Of course I can. It cost $25."
PIECES = [f"{word} " for word in TEXT.split()[:-1]] + [TEXT.split()[-1]]


def service(server: RunningServer, voice: str | None = None, **options: Any) -> CartesiaTTSService:
    """A stock service for `server`."""
    url = f"ws{server.url.removeprefix('http')}/tts/websocket"
    settings = CartesiaTTSService.Settings(voice=voice)
    return CartesiaTTSService(api_key="none", url=url, settings=settings, **options)


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
    """The service pushes an error that names the known voices, and continues to read."""
    async with talking(service(server, voice="nobody")) as conversation:
        await conversation.reply("Yes.")
        await until(lambda: bool(conversation.errors), "an error has come")
        assert "nobody" in conversation.errors[0].error


@pytest.mark.parametrize("rate_hz", [8000, 22_050, 44_100])
async def test_the_service_has_its_rate(server: RunningServer, rate_hz: int) -> None:
    """The audio has the requested rate and an equal duration at every rate."""
    words = await words_of(server, "Yes, of course.")
    end = words[-1].end_sample
    assert end is not None
    async with talking(service(server, sample_rate=rate_hz)) as conversation:
        await conversation.reply("Yes, of course.")
        await conversation.spoken()
        frames = [f for f in conversation.frames if isinstance(f, TTSAudioRawFrame)]
        assert {frame.sample_rate for frame in frames} == {rate_hz}
        seconds = sum(len(frame.audio) for frame in frames) / BYTES_PER_SAMPLE / rate_hz
        assert seconds == pytest.approx(end / SAMPLE_RATE_HZ, abs=0.5)
