"""The demo's loudspeaker plays as one in a call does."""

from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker

from voiceagent_tts.plugins.demo.pipeline import running
from voiceagent_tts.plugins.demo.realtime_file_transport import (
    SPEAKER_RATE_HZ,
    RealtimeFileTransport,
)


async def test_audio_is_played_in_chunks_of_40_ms() -> None:
    """As by real transports: with shorter ones Pipecat's padding of an utterance would hide."""
    transport, frame = RealtimeFileTransport(), SPEAKER_RATE_HZ // 20
    worker = PipelineWorker(
        Pipeline([transport.output()]), cancel_on_idle_timeout=False, enable_rtvi=False
    )
    async with running(worker):
        audio = TTSAudioRawFrame(bytes(2 * frame), SPEAKER_RATE_HZ, 1, context_id="a")
        await worker.queue_frames(
            [TTSStartedFrame(context_id="a"), audio, TTSStoppedFrame(context_id="a"), EndFrame()]
        )
        await transport.wait_until_played("a", frame)
    (utterance,) = transport.utterances
    assert [samples for _, samples in utterance.chunks] == [SPEAKER_RATE_HZ // 25] * 2
