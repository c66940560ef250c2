"""The asyncio client: one socket, many contexts, each an async iterator of audio and words.

    async with TTSClient("ws://127.0.0.1:8765") as client:
        async with await client.open(voice="en") as context:
            await context.send_text("Hello there.")
            await context.end()
            async for event in context:
                match event:
                    case ClientAudio(pcm=pcm): play(pcm)
                    case WordTimestamp(word=word): print(word.text)

The events of a context wait in memory until they are read. Paced audio (the default) arrives about
as fast as it is played; at most, a context that is not read holds the server's `max_audio_s` of
audio. The client depends on no engine, no server and no agent framework.
"""

from voiceagent_tts.client.address import (
    DEFAULT_PATH,
    DEFAULT_URL,
    TRY_TLS,
    VOICES_PATH,
    authorization,
    configured_key,
    configured_url,
    connection_problem,
    http_address,
    public_address,
    refusal,
    server_message,
    speaks_no_tls,
    websocket_address,
)
from voiceagent_tts.client.context import ClientContext, Event
from voiceagent_tts.client.socket import ClientSocket
from voiceagent_tts.client.transport import CLOSE_TIMEOUT_S
from voiceagent_tts.client.tts_client import TTSClient
from voiceagent_tts.core import Cut, WordTimestamp
from voiceagent_tts.protocol.client_connection import ClientAudio, cut_of, timestamps_of
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    CancelledMessage,
    DoneMessage,
    FlushedMessage,
    WarningMessage,
    WordsMovedMessage,
)

__all__ = [
    "CLOSE_TIMEOUT_S",
    "DEFAULT_PATH",
    "DEFAULT_URL",
    "TRY_TLS",
    "VOICES_PATH",
    "AudioFormat",
    "CancelledMessage",
    "ClientAudio",
    "ClientContext",
    "ClientSocket",
    "Cut",
    "DoneMessage",
    "Event",
    "FlushedMessage",
    "TTSClient",
    "WarningMessage",
    "WordTimestamp",
    "WordsMovedMessage",
    "authorization",
    "configured_key",
    "configured_url",
    "connection_problem",
    "cut_of",
    "http_address",
    "public_address",
    "refusal",
    "server_message",
    "speaks_no_tls",
    "timestamps_of",
    "websocket_address",
]
