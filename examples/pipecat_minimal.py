"""The smallest Pipecat bot with this voice: `pip install '.[agents]'`, OPENAI_API_KEY, then

python examples/pipecat_minimal.py    # open http://localhost:7860
"""

import os

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")
WEBRTC = {"webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True)}


async def bot(runner_args: RunnerArguments) -> None:
    """Talk to one visitor."""
    transport = await create_transport(runner_args, WEBRTC)
    params = LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    context = LLMContext([{"role": "system", "content": "Greet the user. Be brief."}])
    user, assistant = LLMContextAggregatorPair(context, user_params=params)
    stt, llm = OpenAISTTService(), OpenAILLMService()
    tts = VoiceAgentTTSService(url=URL, language="en")
    worker = PipelineWorker(
        Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
    )

    @transport.event_handler("on_client_connected")
    async def on_client_connected(*_: object) -> None:
        await worker.queue_frames([LLMRunFrame()])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)
    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
