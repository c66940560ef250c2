"""Speaks a text into a whole file: for answers with a length, for batches and for jobs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from voiceagent_tts.audio.containers import CONTENT_TYPES, ContainerFormat
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.server.encoding import file_encoder
from voiceagent_tts.server.speaking import Listener, Speech
from voiceagent_tts.server.state import AudioFile, ServerState

_SLICE_BYTES = 192 << 10
"""Part of a file that is sent in one iteration of the event loop. It is a multiple of 3: the base64
of the slices is that of the file."""


@dataclass(frozen=True, slots=True)
class SpeechFile:
    """A complete file of speech.

    Attributes:
        data: the file, with an exact header, and as the server's file filter returns it.
        content_type: its Content-Type.
        audio_ms: its duration.
        provenance: where its audio comes from.
    """

    data: AudioFile
    content_type: str
    audio_ms: int
    provenance: ProvenanceFields

    async def slices(self) -> AsyncGenerator[bytes, None]:
        """Yield the file in parts; other tasks run between them."""
        data = memoryview(self.data)
        for start in range(0, len(data), _SLICE_BYTES):
            yield bytes(data[start : start + _SLICE_BYTES])
            await asyncio.sleep(0)


async def collect_file(
    state: ServerState, listener: Listener, speech: Speech, container_format: ContainerFormat
) -> SpeechFile:
    """Encode all audio of a speech; the server's `max_audio_s` limits it, and `held` the memory.

    The returned file counts as held; after an error, none of it does.

    Raises:
        ConnectionLostError: the listener is gone.
        InvalidRequestError: the files of the request are too large together.
        OverloadedError: the caller holds too much memory.
        VoiceAgentError: the speech has ended early.
    """
    data = bytearray()
    try:
        await _encode(listener, speech, container_format, data)
        provenance = speech.provenance(is_complete=True)
        file: AudioFile = data
        if state.file_filter is not None:
            file = await state.file_filter(file, container_format, provenance)
    except BaseException:
        listener.hold.give_back(len(data))
        raise
    audio_ms = round(1000 * speech.samples / SAMPLE_RATE_HZ)
    return SpeechFile(file, CONTENT_TYPES[container_format], audio_ms, provenance)


async def _encode(
    listener: Listener, speech: Speech, container_format: ContainerFormat, data: bytearray
) -> None:
    """Append the file to `data`; all appended bytes have been counted as held."""
    answer = file_encoder(container_format)
    async with aclosing(answer.encoded(speech.pcm())) as audio:
        async for piece in audio:
            listener.hold.take(len(piece))
            data += piece
            if await listener.is_gone():
                raise ConnectionLostError("the client disconnected before the audio was complete")
    answer.encoder.write_length(data)
