"""Read the events of a synthesizer's contexts."""

from dataclasses import dataclass

from testbed.servers import worker_of
from testbed.waiting import until
from voiceagent_tts.core import AudioChunk, WordTimestamp
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextReport,
    ContextWords,
    Source,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer

SENTENCE = "The quick brown fox jumps over the lazy dog."
NEVER_S = 10**6
NEVER_MS = 10**9
UNPACED = ContextOptions(language="en", max_lead_s=0, max_buffer_delay_ms=NEVER_MS)


@dataclass(frozen=True)
class ContextOutput:
    """All events of a context by kind; `samples` is where its audio ends."""

    pcm: bytes
    timestamps: list[WordTimestamp]
    samples: int
    error: Exception | None
    report: ContextReport

    @property
    def words(self) -> list[str]:
        return [timestamp.word.text for timestamp in self.timestamps]


async def collect(context: Context) -> ContextOutput:
    """Read to the end; check that chunks are gap-free and an engine's words precede their audio.

    Other words are known later. They precede the playback of their audio, which this reader may
    take much sooner.
    """
    has_native_words = context.worker.capabilities.has_native_words
    pcm, words = bytearray(), list[WordTimestamp]()
    samples, error, is_behind = 0, None, False
    async for event in context:
        match event:
            case AudioChunk():
                assert event.start_sample == samples or samples == 0
                samples = event.end_sample
                pcm += event.pcm
            case ContextWords(timestamps):
                is_behind |= timestamps[0].start_sample < samples
                words += timestamps
            case ContextFlushed(end_sample=end_sample):
                assert end_sample == samples
            case ContextFailed(cause):
                error = cause
            case ContextDone(_, report):
                by_aligner = {Source.ONLINE, Source.FORCED} & report.words.sources.keys()
                assert not is_behind or by_aligner or not has_native_words
                return ContextOutput(bytes(pcm), words, samples, error, report)
            case ContextCancelled():
                pass
    raise AssertionError("a context ends with ContextDone")


async def say(
    synthesizer: Synthesizer, text: str, options: ContextOptions = UNPACED
) -> ContextOutput:
    context = await synthesizer.open(options)
    context.push_text(text)
    context.finish()
    return await collect(context)


async def first(context: Context, kind: type[ContextEvent]) -> ContextEvent:
    async for event in context:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"{kind} did not come")


async def made_samples(synthesizer: Synthesizer, least: int) -> int:
    """Return the engine's number of generated samples once a heartbeat reports `least` or more."""
    worker = worker_of(synthesizer)
    await until(lambda: worker.stats.audio_samples >= least, f"{least} samples are made")
    last = worker.stats
    await until(lambda: worker.stats is not last, "one more heartbeat")
    return worker.stats.audio_samples
