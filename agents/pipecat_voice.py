"""A voice agent for Pipecat to talk to in a browser; it needs no API key and no model download.

    python -m agents.pipecat_voice               # open http://localhost:7860
    python -m agents.pipecat_voice -t daily      # a room of Daily (DAILY_API_KEY)
    python -m agents.pipecat_voice -t twilio -x your.domain.example   # phone calls

The voice comes from a voiceagent-tts server: the one at `VOICEAGENT_TTS_URL`, or else the one on
this machine's default port, or else one with the embedded voice that this program starts. Silero's
model, which Pipecat bundles, detects voice activity. Transcription and the language model are
optional servers with an OpenAI-compatible API: `agents.models` lists their variables. Without them,
stand-ins take their place: the agent notices that you speak but not what you say, and speaks fixed
lines. Interrupt it, and it repeats the last words that you heard, according to its history.
"""

from pathlib import Path
from typing import Any

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.turns.empty_user_turn import EmptyUserTurnConfig
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from agents import stand_ins
from agents.models import named_server
from agents.pipecat_stand_ins import DurationSTT, ScriptedLLM
from agents.voice_server import voice_server
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService

RESUME_PROMPT = (
    "A sound without words interrupted you. Your last message ends with the last word that the "
    "user heard. Continue with the word after it, and repeat nothing."
)
"""After a false interruption, the language model continues at the first unheard word."""
SERVER_LOG = Path("out/pipecat_voice-server.log")


def daily_params() -> TransportParams:
    """Parameters of a Daily room; Pipecat's extra `daily` is imported only for these."""
    from pipecat.transports.daily.transport import DailyParams

    return DailyParams(audio_in_enabled=True, audio_out_enabled=True)


transport_params: dict[str, Any] = {
    "daily": daily_params,
    "twilio": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
}


async def bot(runner_args: RunnerArguments) -> None:
    """Hold one conversation; Pipecat's runner calls this for each client."""
    transport = await create_transport(runner_args, transport_params)
    async with voice_server(SERVER_LOG) as url:
        worker = build_worker(transport, url, LLMContext())

        @transport.event_handler("on_client_connected")
        async def on_client_connected(*_: object) -> None:
            await worker.queue_frames([LLMRunFrame()])

        @transport.event_handler("on_client_disconnected")
        async def on_client_disconnected(*_: object) -> None:
            await worker.cancel()

        runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)
        await runner.add_workers(worker)
        await runner.run()


def build_worker(transport: BaseTransport, url: str, context: LLMContext) -> PipelineWorker:
    """The pipeline of one conversation.

    Args:
        transport: carries the audio of both sides.
        url: address of the voice server.
        context: the history; of an interrupted reply, it gets what was heard.
    """
    aggregators = LLMContextAggregatorPair(context, user_params=user_params())
    tts = VoiceAgentTTSService(url=url)
    pipeline = Pipeline(
        [
            transport.input(),
            choose_stt(),
            aggregators.user(),
            choose_llm(),
            tts,
            transport.output(),
            aggregators.assistant(),
        ]
    )
    params = PipelineParams(enable_metrics=True, enable_usage_metrics=True)
    return PipelineWorker(pipeline, params=params)


def user_params() -> LLMUserAggregatorParams:
    """When the user's turn starts and ends, and what follows a turn without words."""
    stop = SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.4)
    return LLMUserAggregatorParams(
        vad_analyzer=SileroVADAnalyzer(),
        user_turn_strategies=UserTurnStrategies(stop=[stop]),
        empty_user_turn=EmptyUserTurnConfig(
            interrupted_prompt=RESUME_PROMPT, max_consecutive_recoveries=3
        ),
    )


def choose_stt() -> FrameProcessor:
    """The transcription server that the environment names, or the stand-in."""
    server = named_server("STT", default_model="whisper-1")
    if server is None:
        return DurationSTT()
    settings = OpenAISTTService.Settings(model=server.model)
    return OpenAISTTService(base_url=server.url, api_key=server.api_key, settings=settings)


def choose_llm() -> FrameProcessor:
    """The language model server that the environment names, or the stand-in."""
    server = named_server("LLM", default_model="default")
    if server is None:
        return ScriptedLLM()
    settings = OpenAILLMService.Settings(
        model=server.model, system_instruction=stand_ins.INSTRUCTIONS
    )
    return OpenAILLMService(base_url=server.url, api_key=server.api_key, settings=settings)


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
