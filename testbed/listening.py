"""Listens to contexts of a client, up to their first audio and to their end."""

from voiceagent_tts.client import TTSClient
from voiceagent_tts.client.context import ClientContext
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import DoneMessage


async def first_audio(client: TTSClient, text: str, lead_s: float) -> ClientContext:
    """Open a context and wait for its first audio."""
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
