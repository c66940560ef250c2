"""A minimal Pipecat pipeline around the service: prints the words that the assistant committed.

python pipecat_speaks.py ws://HOST:PORT
"""

import asyncio
import sys

from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSSpeakFrame, TTSTextFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.workers.runner import WorkerRunner

from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService


class Listener(BaseObserver):
    """Counts the audio and collects the words that leave the service."""

    def __init__(self, service: VoiceAgentTTSService) -> None:
        super().__init__()
        self.audio_bytes = 0
        self.words: list[str] = []
        self._service = service

    async def on_push_frame(self, data: FramePushed) -> None:
        """Look at each frame once, where the service pushes it."""
        if data.source is not self._service:
            return
        if isinstance(data.frame, TTSAudioRawFrame):
            self.audio_bytes += len(data.frame.audio)
        elif isinstance(data.frame, TTSTextFrame):
            self.words.append(data.frame.text)


async def main() -> None:
    """Speak a sentence."""
    service = VoiceAgentTTSService(url=f"{sys.argv[1]}/v1/tts/ws")
    listener = Listener(service)
    worker = PipelineWorker(Pipeline([service]), observers=[listener], enable_rtvi=False)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await worker.queue_frames([TTSSpeakFrame("Hello there, I am your agent."), EndFrame()])
    await runner.run()
    assert listener.audio_bytes > 48_000, listener.audio_bytes
    print("".join(listener.words))


asyncio.run(main())
