"""Listens to contexts of a client: their first audio, their end, and the times of their words."""

from typing import Any

from voiceagent_tts.client import AudioFormat, TTSClient, WordTimestamp
from voiceagent_tts.client.context import ClientContext
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import DoneMessage, SampleRate


async def first_audio(client: TTSClient, text: str, lead_s: float) -> ClientContext:
    context = await client.open(language="en", max_lead_s=lead_s)
    await context.send_text(text)
    await context.end()
    async for event in context:
        if isinstance(event, ClientAudio):
            return context
    raise AssertionError("no audio")


async def rest_of(context: ClientContext) -> str:
    """Listen to the end; return how it ended."""
    try:
        async for event in context:
            if isinstance(event, DoneMessage):
                return event.reason
    except ConnectionLostError:
        return "lost"
    raise AssertionError("no end")


async def words_of(url: str, text: str, **options: Any) -> list[WordTimestamp]:
    """Return word times of `text` from the server at `url`, which no host has touched."""
    async with TTSClient(url) as client:
        events = client.say(text, max_lead_s=0.0, **options)
        return [event async for event in events if isinstance(event, WordTimestamp)]


async def pcm_of(
    url: str, text: str, voice: str = "default", rate_hz: SampleRate = SAMPLE_RATE_HZ
) -> bytes:
    """Return the audio of an English `text` from the server at `url`, which no host has touched."""
    audio = AudioFormat(sample_rate=rate_hz)
    async with TTSClient(url) as client:
        events = client.say(text, voice=voice, language="en", audio=audio, max_lead_s=0.0)
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
