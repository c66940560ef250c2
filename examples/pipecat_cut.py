"""A Pipecat agent is interrupted; its history has what was heard. No key, no microphone.

pip install '.[pipecat]', start a server (voiceagent-tts serve), then

python examples/pipecat_cut.py
"""

import asyncio
import os

from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.workers.runner import WorkerRunner

from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")
TOKENS = ["Monday", ",", " Tues", "day", ", Wednesday", ", Thursday", ", and Friday", "."]


async def main() -> None:
    """Interrupt a reply after two and a half seconds, and print what the history has of it."""
    transport = RealtimeFileTransport()  # in your bot: Daily, SmallWebRTC, a telephone, ...
    tts = VoiceAgentTTSService(url=URL, voice="nova", language="en")
    history = LLMContext([{"role": "user", "content": "When are you open?"}])
    assistant = LLMContextAggregatorPair(history).assistant()
    # In your bot, transcription, the user's aggregator and the LLM come before `tts`.
    worker = PipelineWorker(Pipeline([transport.input(), tts, transport.output(), assistant]))
    runner = WorkerRunner()
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    llm = [LLMFullResponseStartFrame(), *map(LLMTextFrame, TOKENS), LLMFullResponseEndFrame()]
    await worker.queue_frames(llm)
    await asyncio.sleep(2.5)
    await worker.queue_frame(InterruptionFrame())  # the user speaks
    await asyncio.sleep(0.5)
    await worker.cancel()
    await running
    said = history.get_messages()[-1]
    if said["role"] != "assistant":
        raise SystemExit(f"nothing was spoken; is there a server at {URL}? voiceagent-tts serve")
    print("in the history:", said["content"])


if __name__ == "__main__":
    asyncio.run(main())
