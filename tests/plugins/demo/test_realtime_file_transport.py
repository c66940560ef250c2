"""The demo's transport hands audio over as Pipecat's own transports do."""

import asyncio

import pytest
from pipecat.frames.frames import TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import TransportParams

from testbed.waiting import PATIENCE_S
from voiceagent_tts.plugins.demo.pipeline import running
from voiceagent_tts.plugins.demo.realtime_file_transport import (
    SPEAKER_RATE_HZ,
    RealtimeFileTransport,
)

CHUNK_MS = 40
CHUNK_SAMPLES = CHUNK_MS * SPEAKER_RATE_HZ // 1000


@pytest.mark.realtime
async def test_audio_plays_in_chunks_as_on_real_transports() -> None:
    """Chunks of Pipecat's default length, the last one filled up: shorter ones hide mistakes."""
    assert TransportParams().audio_out_10ms_chunks * 10 == CHUNK_MS
    out = RealtimeFileTransport()
    worker = PipelineWorker(
        Pipeline([out.output()]), cancel_on_idle_timeout=False, enable_rtvi=False
    )
    pcm = bytes(2 * (2 * CHUNK_SAMPLES + 1))
    async with asyncio.timeout(PATIENCE_S), running(worker):
        await worker.queue_frame(TTSStartedFrame(context_id="one"))
        await worker.queue_frame(TTSAudioRawFrame(pcm, SPEAKER_RATE_HZ, 1, context_id="one"))
        await worker.queue_frame(TTSStoppedFrame(context_id="one"))
        utterance = await out.wait_until_played("one", len(pcm) // 2)
        assert [samples for _, samples in utterance.chunks] == [CHUNK_SAMPLES] * 3
