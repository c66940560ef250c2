"""A Pipecat agent that is interrupted, and whose history has exactly the words that were heard.

`run_demo` starts a server with the embedded voice and runs a real Pipecat pipeline against it: real
context aggregators, real voice activity detection (Silero) on the audio of a user who speaks, and
an output that plays in real time. Only the LLM and the transcription are scripted, because both
need a network or a download. The user asks questions in four languages and interrupts every answer
but the last. The demo compares the words that were heard, found in the samples that were played,
with the words in the history, and writes a recording, a picture and the numbers.
"""

import asyncio
import contextlib
import gc
import random
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import MetricsFrame
from pipecat.metrics.metrics import TTFAMetricsData
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.demo.demo_server import EMBEDDED, DemoVoice, demo_server
from voiceagent_tts.plugins.demo.pipeline import running
from voiceagent_tts.plugins.demo.realtime_file_transport import (
    MICROPHONE_RATE_HZ,
    RealtimeFileTransport,
)
from voiceagent_tts.plugins.demo.report import DemoTurn, report
from voiceagent_tts.plugins.demo.scripted import ScriptedLLM, ScriptedSTT
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import AudioFormat
from voiceagent_tts.text.words import split_words

_SEED = 7
"""Of the moments of interruption."""
AGENT_VOICE = "default"
EARLIEST_INTERRUPTION_S, LATEST_INTERRUPTION_S = 0.7, 5.0
VAD_S = 0.3
"""Approximate time from the user's first sound to the agent's silence."""
ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Exchange:
    """A question of the user, and the agent's answer."""

    language: str
    question: str
    answer: str


def _script() -> list[Exchange]:
    file = files("voiceagent_tts.plugins.demo").joinpath("script.toml")
    return [Exchange(**each) for each in tomllib.loads(file.read_text("utf-8"))["exchanges"]]


def run_demo(
    out: Path,
    url: str | None,
    api_key: str | None,
    voice: DemoVoice = EMBEDDED,
) -> bool:
    """Interrupt an agent, and compare the words that were heard with those in its history.

    Args:
        out: folder for `demo.wav`, `demo.png` and `demo.json`, and for the log of the server.
        url: address of a running server; None starts one with `voice`.
        api_key: key for the server at `url`.
        voice: the agent's voice. The user always has the embedded one, unless `url` is given.

    Returns:
        Whether the history was as good as the demo claims.

    Raises:
        EngineError: the server did not start.
        OSError: `out` is not a writable folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_run(out, url, api_key, voice))


async def _run(out: Path, url: str | None, api_key: str | None, voice: DemoVoice) -> bool:
    console = Console()
    script = [exchange for exchange in _script() if exchange.language in voice.languages]
    async with contextlib.AsyncExitStack() as stack:
        if url is None:
            url = await stack.enter_async_context(demo_server(out / "server.log", voice.engine))
        console.print(f"server: {url}", highlight=False)
        questions = await _questions(script, url, api_key, voice, out / "user.log")
        conversation = Conversation(url, api_key, script)
        gc.freeze()  # a full garbage collection would stop playback for 0.2 s
        interruptions_s = choose_interruptions(random.Random(_SEED), script)
        turns = await conversation.run(questions, interruptions_s, console)
    return report(
        turns,
        conversation.transport,
        conversation.ttfa_s,
        out,
        console,
        max_onset_error_ms=voice.max_onset_error_ms,
    )


async def _questions(
    script: list[Exchange], url: str, api_key: str | None, voice: DemoVoice, log: Path
) -> list[bytes]:
    """The user's questions as audio, spoken by another voice than the agent's."""
    if voice.user_voice is not None:
        return await synthesize_questions(script, url, api_key, voice.user_voice)
    async with demo_server(log) as user_url:
        return await synthesize_questions(script, user_url, None)


async def synthesize_questions(
    script: list[Exchange], url: str, api_key: str | None, voice: str = "nova"
) -> list[bytes]:
    """The questions of `script` as audio, spoken by the server at `url`."""
    async with TTSClient(url, api_key) as client:
        return [await _synthesize_question(client, exchange, voice) for exchange in script]


async def _synthesize_question(client: TTSClient, exchange: Exchange, voice: str) -> bytes:
    events = client.say(
        exchange.question,
        voice=voice,
        language=exchange.language,
        audio=AudioFormat(sample_rate=MICROPHONE_RATE_HZ),
        max_lead_s=0,
    )
    return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])


class Conversation:
    """The agent's pipeline, and a simulated user."""

    def __init__(self, url: str, api_key: str | None, script: list[Exchange]) -> None:
        self._script = script
        self.transport = RealtimeFileTransport()
        self.ttfa_s: list[float] = []
        self._words: dict[str, list[WordTimestamp]] = {}
        self._answers: asyncio.Queue[str] = asyncio.Queue()  # TTS contexts, oldest first
        self._committed: asyncio.Queue[str] = asyncio.Queue()

        self._stt = ScriptedSTT()
        llm = ScriptedLLM({turn.question: (turn.language, turn.answer) for turn in script})
        tts = VoiceAgentTTSService(
            url=url,
            api_key=api_key,
            settings=VoiceAgentTTSService.Settings(voice=AGENT_VOICE),
        )
        stop = SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.2)
        aggregators = LLMContextAggregatorPair(
            LLMContext(),
            user_params=LLMUserAggregatorParams(
                vad_analyzer=SileroVADAnalyzer(),
                user_turn_strategies=UserTurnStrategies(stop=[stop]),
            ),
        )
        self._worker = PipelineWorker(
            Pipeline(
                [
                    self.transport.input(),
                    self._stt,
                    aggregators.user(),
                    llm,
                    tts,
                    self.transport.output(),
                    aggregators.assistant(),
                ]
            ),
            params=PipelineParams(enable_metrics=True),
            observers=[_FirstAudio(self.ttfa_s)],
            enable_rtvi=False,
        )

        @tts.event_handler("on_words")
        async def on_words(_: object, context_id: str, words: list[WordTimestamp]) -> None:
            if context_id not in self._words:
                self._answers.put_nowait(context_id)
            self._words.setdefault(context_id, []).extend(words)

        @aggregators.assistant().event_handler("on_assistant_turn_stopped")
        async def on_turn_stopped(_: object, message: AssistantTurnStoppedMessage) -> None:
            self._committed.put_nowait(message.content)

    async def run(
        self, questions: list[bytes], interruptions_s: list[float | None], console: Console
    ) -> list[DemoTurn]:
        """Ask every question, each interrupting the previous answer; returns the turns."""
        turns: list[DemoTurn] = []
        async with running(self._worker):
            with _progress(console) as progress:
                task = progress.add_task("talking", total=len(self._script))
                steps = zip(self._script, questions, interruptions_s, strict=True)
                for exchange, pcm, interrupt_at_s in steps:
                    progress.update(task, description=exchange.question)
                    turns.append(await self._ask(exchange, pcm, turns, interrupt_at_s))
                    progress.advance(task)
        return turns

    async def _ask(
        self, exchange: Exchange, pcm: bytes, turns: list[DemoTurn], interrupt_at_s: float | None
    ) -> DemoTurn:
        """Ask a question, which interrupts the previous answer, and listen to the answer."""
        self._stt.expect(exchange.question)
        self.transport.say(pcm)
        turn = DemoTurn(
            exchange.language, exchange.answer, is_interrupted=interrupt_at_s is not None
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if turns:
                    turns[-1].committed = await self._committed.get()
                turn.context_id = await self._answers.get()
                turn.words = self._words[turn.context_id]
        if turn.context_id is not None:
            await self._listen(turn, turn.context_id, interrupt_at_s)
        return turn

    async def _listen(self, turn: DemoTurn, context_id: str, interrupt_at_s: float | None) -> None:
        """Listen to the answer until it is time to interrupt it, or to its end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if interrupt_at_s is None:
                    turn.committed = await self._committed.get()
                    end = turn.words[-1].end_sample or turn.words[-1].start_sample
                    await self.transport.wait_until_played(context_id, end)
                else:
                    until = round((interrupt_at_s - VAD_S) * SAMPLE_RATE_HZ)
                    await self.transport.wait_until_played(context_id, until)


def choose_interruptions(rng: random.Random, script: list[Exchange]) -> list[float | None]:
    """A moment of interruption for each answer, in seconds of its audio; None for the last one."""
    count = len(script) - 1
    parts = [(index + rng.random()) / count for index in range(count)]
    rng.shuffle(parts)
    interruptions_s: list[float | None] = []
    for exchange, part in zip(script[:-1], parts, strict=True):
        word_s = 0.17 if exchange.language == "zh" else 0.3  # no voice speaks a word faster
        end_s = min(word_s * len(split_words(exchange.answer)), LATEST_INTERRUPTION_S)
        interruptions_s.append(EARLIEST_INTERRUPTION_S + part * (end_s - EARLIEST_INTERRUPTION_S))
    return [*interruptions_s, None]


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.description}"), console=console)


class _FirstAudio(BaseObserver):
    """Collects the time from text to first audio (TTFA) of each turn."""

    def __init__(self, ttfa_s: list[float]) -> None:
        super().__init__()
        self._ttfa_s = ttfa_s
        self._seen: set[int] = set()

    async def on_push_frame(self, data: FramePushed) -> None:
        if isinstance(data.frame, MetricsFrame) and data.frame.id not in self._seen:
            self._seen.add(data.frame.id)
            metrics = [m for m in data.frame.data if isinstance(m, TTFAMetricsData)]
            self._ttfa_s += [metric.ttfa for metric in metrics if metric.ttfa > 0]
