"""A Pipecat pipeline, its loudspeaker and a server on one scripted clock."""

import asyncio
from typing import Any, cast

from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from testbed.scripted_time import run_scripted
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.demo.pipeline import running
from voiceagent_tts.plugins.bench.scripted_server import Script, ScriptedServer


class LoopClock(BaseClock):
    """Pipecat's clock, on the time of the event loop."""

    def get_time(self) -> int:
        """Nanoseconds."""
        return round(asyncio.get_running_loop().time() * 1e9)

    def start(self) -> None:
        """Do nothing: the loop's time runs already."""


class Loudspeaker(BaseOutputTransport):
    """Plays whole chunks without a gap where it has them.

    Attributes:
        played_samples: audio of all chunks that have begun.
        chunks_s: when each of them began.
    """

    def __init__(self, chunk_ms: int) -> None:
        super().__init__(
            TransportParams(
                audio_out_enabled=True,
                audio_out_sample_rate=SAMPLE_RATE_HZ,
                audio_out_10ms_chunks=chunk_ms // 10,
                audio_out_end_silence_secs=0,
            )
        )
        self.played_samples = 0
        self.chunks_s: list[float] = []
        self._free_at_s = 0.0
        self._has_begun = asyncio.Event()

    async def start(self, frame: StartFrame) -> None:
        """Play from now on."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Play a chunk to its end."""
        now_s = asyncio.get_running_loop().time()
        samples = len(frame.audio) // BYTES_PER_SAMPLE
        self.chunks_s.append(max(now_s, self._free_at_s))
        self.played_samples += samples
        self._free_at_s = self.chunks_s[-1] + samples / SAMPLE_RATE_HZ
        self._has_begun.set()
        await asyncio.sleep(self._free_at_s - now_s)
        return True

    async def begun(self) -> float:
        """When the first chunk began."""
        await self._has_begun.wait()
        return self.chunks_s[0]


def cut(text: str, script: Script, after_s: float, chunk_ms: int = 40) -> tuple[str, int]:
    """Speak `text` by `script`, and interrupt it.

    Args:
        text: a reply; the scripted server's words are single letters.
        script: what the server sends.
        after_s: seconds from the first chunk that plays to the interruption.
        chunk_ms: length of the chunks that the transport plays.

    Returns:
        The words in the history, and the audio that was played, in samples.
    """

    async def run() -> tuple[str, int]:
        async with ScriptedServer(script).running() as server:
            return await _cut(server.addresses["ws"], text, after_s, Loudspeaker(chunk_ms))

    return run_scripted(run())


async def _cut(url: str, text: str, after_s: float, loudspeaker: Loudspeaker) -> tuple[str, int]:
    context = LLMContext()
    aggregators = LLMContextAggregatorPair(context)
    committed: asyncio.Queue[str] = asyncio.Queue()

    @aggregators.assistant().event_handler("on_assistant_turn_stopped")
    async def on_turn_stopped(_: object, message: Any) -> None:
        committed.put_nowait(message.content)

    parts = [VoiceAgentTTSService(url=url), loudspeaker, aggregators.assistant()]
    worker = PipelineWorker(
        Pipeline(parts), clock=LoopClock(), cancel_on_idle_timeout=False, enable_rtvi=False
    )
    async with running(worker):
        for frame in (LLMFullResponseStartFrame(), LLMTextFrame(text), LLMFullResponseEndFrame()):
            await worker.queue_frame(frame)
        begun_s = await loudspeaker.begun()
        await asyncio.sleep(begun_s + after_s - asyncio.get_running_loop().time())
        await worker.queue_frame(InterruptionFrame())
        async with asyncio.timeout(1.0):
            content = await committed.get()
    messages = cast("list[dict[str, str]]", context.get_messages())
    assert [each["content"] for each in messages] == ([content] if content else [])
    return content, loudspeaker.played_samples
