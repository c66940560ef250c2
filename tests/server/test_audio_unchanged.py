"""Listeners get the bytes that the engine made, each of them those of its own text."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

from testbed.agent_text import agent_monologue
from testbed.servers import StartServer
from voiceagent_tts.client import TTSClient
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.events import AudioStep, Event
from voiceagent_tts.synthesizer.workers import EventHandler, OnFree, WorkerClient


@contextlib.contextmanager
def recorded_pcm() -> Iterator[list[bytearray]]:
    """Record the PCM that engines send to this process, per context, within the block.

    espeak's samples depend on its earlier texts, so an engine cannot be asked again.
    """
    recordings: list[bytearray] = []
    attach = WorkerClient.attach

    def attach_recording(
        worker: WorkerClient, listener: EventHandler, on_free: OnFree | None = None
    ) -> int:
        recordings.append(recording := bytearray())

        def record(event: Event | AlignEvent) -> None:
            if isinstance(event, AudioStep):
                recording.extend(event.rows[0].chunk.pcm)
            listener(event)

        return attach(worker, record, on_free)

    with patch.object(WorkerClient, "attach", attach_recording):
        yield recordings


async def received(client: TTSClient, text: str) -> bytes:
    """The audio of a text."""
    events = [event async for event in client.say(text, max_lead_s=0)]
    return b"".join(event.pcm for event in events if isinstance(event, ClientAudio))


async def test_texts_at_once_arrive_as_they_were_made(start_server: StartServer):
    """Sixteen contexts share a socket; a mix-up, a lost byte or one too many would show."""
    texts = [agent_monologue(seed, 60) for seed in range(16)]
    with recorded_pcm() as made:
        server = await start_server(watermark=False, cache_mb=0)
        async with TTSClient(server.websocket_url) as client:
            heard = await asyncio.gather(*(received(client, text) for text in texts))
    assert len(set(heard)) == len(texts) and all(heard)
    assert Counter(heard) <= Counter(bytes(pcm) for pcm in made)  # the engine is probed, too
