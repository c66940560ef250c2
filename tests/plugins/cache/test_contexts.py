"""Contexts with the cache: real espeak, with its own word times and with those of an aligner."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from testbed.contexts import NEVER_S, UNPACED, collect, first
from testbed.servers import StartSynthesizer, worker_of
from testbed.waiting import undisturbed, until
from voiceagent_tts.core import AudioChunk, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.cache.caching_worker import phrases_of
from voiceagent_tts.plugins.cache.phrases import Phrase
from voiceagent_tts.plugins.cache.proxy import CachingProxy
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.seam.commands import Command, SpeechOptions, Submit
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextFailed, ContextFlushed, ContextReport, Source
from voiceagent_tts.synthesizer.options import ContextOptions, Limits
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import (
    Supervisor,
    WorkerClient,
    WorkerSpec,
)
from voiceagent_tts.word_times.processes import Aligners

GREETING = "Thank you for calling Acme."
REST = " Your order left our house on Tuesday."
MENU = " For billing, press two."


@dataclass(frozen=True)
class Heard:
    """What the listener of a context gets."""

    pcm: bytes
    words: list[WordTimestamp]
    report: ContextReport
    stored: int

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """Each word with its offsets."""
        return [(w.word.text, w.word.char_start, w.word.char_end) for w in self.words]


async def hear(context: Context) -> Heard:
    """Read to the end, as `collect` does."""
    output, phrases = await collect(context), phrases_of(context)
    stored = 0 if phrases is None else phrases.stored
    return Heard(output.pcm, output.timestamps, output.report, stored)


async def say(synthesizer: Synthesizer, *parts: str, options: ContextOptions = UNPACED) -> Heard:
    """Speak parts of a text, which the client sends one after the other."""
    context = await synthesizer.open(options)
    for part in parts:
        context.push_text(part)
    context.finish()
    return await hear(context)


Start = Callable[..., Awaitable[Synthesizer]]


@pytest.fixture
def start(start_synthesizer: StartSynthesizer) -> Start:
    """Start synthesizers with a cache that stores everything at once."""

    async def start(limits: Limits | None = None, after: int = 1, **options: Any) -> Synthesizer:
        cache = PhraseCache(50e6, 3600, after)
        synthesizer = await start_synthesizer(limits or Limits(settle_s=NEVER_S), **options)
        synthesizer.proxy = CachingProxy(cache).connect
        return synthesizer

    return start


async def start_aligned(start: Start) -> Synthesizer:
    """A synthesizer whose engine reports no words."""
    aligners = Aligners({Source.ONLINE: [Supervisor(WorkerSpec("online"))]})
    return await start(throttle={"without_words": True}, make_aligners=lambda: aligners)


async def test_a_text_that_was_spoken_before_sounds_and_reads_the_same(start: Start) -> None:
    """Sample for sample and word for word, however the client splits it; no engine speaks."""
    synthesizer = await start()
    live = await say(synthesizer, GREETING + REST)
    cached = await say(synthesizer, *GREETING, REST)
    assert live.report.cached_segments == 0
    assert cached.report.cached_segments == live.stored == 2
    assert (cached.pcm, cached.words) == (live.pcm, live.words)
    assert set(cached.report.words.sources) == {Source.CACHE}


async def test_live_text_follows_a_cached_phrase_without_a_gap(start: Start) -> None:
    """The context sounds as if the engine had spoken all of it."""
    synthesizer = await start()
    live = await say(synthesizer, GREETING + REST + MENU, options=replace(UNPACED, cache="off"))
    assert live.stored == 0
    await say(synthesizer, GREETING + MENU)
    mixed = await say(synthesizer, GREETING + REST + MENU)
    assert mixed.report.cached_segments == 2
    assert mixed.places == live.places
    # The engine takes the live sentence for its first, and trims the silence before its sound.
    assert abs(len(mixed.pcm) - len(live.pcm)) < 2400
    sources = mixed.report.words.sources
    assert sources[Source.NATIVE] == len(REST.split())
    starts = [word.start_sample for word in mixed.words]
    assert starts == sorted(starts)


def furthest_samples(one: Heard, other: Heard) -> int:
    """How far a word of one is from the same word of the other."""
    both = zip(one.words, other.words, strict=True)
    return max(abs(a.start_sample - b.start_sample) for a, b in both)


async def test_the_words_of_an_aligner_are_stored_with_their_audio(start: Start) -> None:
    """The second time no aligner is asked, and the words are where they were."""

    async def moved_samples() -> int:
        aligned = await start_aligned(start)
        live = await say(aligned, GREETING + REST)
        assert live.stored == 2
        cached = await say(aligned, GREETING + REST)
        assert cached.pcm == live.pcm
        assert cached.places == live.places
        assert set(cached.report.words.sources) == {Source.CACHE}
        assert cached.report.aligner_lag_s == {Source.ONLINE: 0.0}
        return furthest_samples(live, cached)

    # Words that must leave before the aligner of a busy machine has found them are estimates.
    assert await undisturbed(moved_samples, holds=lambda samples: samples < 7200) < 7200


async def test_an_aligner_hears_only_what_the_engine_speaks(start: Start) -> None:
    """Its times of live text are moved behind the cached phrases before that text."""

    async def moved_samples() -> int:
        aligned = await start_aligned(start)
        truth = await say(aligned, GREETING + REST + MENU, options=replace(UNPACED, cache="off"))
        await say(aligned, GREETING + MENU)
        mixed = await say(aligned, GREETING + REST + MENU)
        assert mixed.report.cached_segments == 2
        assert mixed.places == truth.places
        return furthest_samples(truth, mixed)

    assert await undisturbed(moved_samples, holds=lambda samples: samples < 7200) < 7200


async def test_a_barge_in_on_cached_audio_is_as_exact_as_on_live_audio(start: Start) -> None:
    """The same text is heard and unheard at every moment."""
    synthesizer = await start()
    contexts: list[Context] = []
    for _ in range(2):
        context = await synthesizer.open(UNPACED)
        context.push_text(GREETING + REST)
        context.finish()
        await hear(context)
        contexts.append(context)
    live, cached = contexts
    for played in range(0, 120_000, 1111):
        assert cached.cut(played) == live.cut(played)


async def test_a_cancel_of_cached_audio_frees_its_row(start: Start) -> None:
    """And drops what waits behind the phrase; the worker hears nothing of the context."""
    synthesizer = await start()
    await say(synthesizer, GREETING + REST)
    context = await synthesizer.open(ContextOptions(language="en", max_lead_s=0.2))
    context.push_text(GREETING + " Something new.")
    await first(context, AudioChunk)
    context.cancel()
    assert (await collect(context)).report.reason == "cancelled"
    assert worker_of(synthesizer).rows_used == 0


async def test_cached_audio_is_paced_like_live_audio(start: Start) -> None:
    """No more is handed out than the listener will need soon."""
    synthesizer = await start()
    await say(synthesizer, GREETING)
    context = await synthesizer.open(ContextOptions(language="en", max_lead_s=0.5))
    context.push_text(GREETING)
    context.finish()
    chunk = await first(context, AudioChunk)
    assert isinstance(chunk, AudioChunk)
    handed_out = chunk.end_sample
    while context.has_audio_next:
        chunk = context.next_event()
        assert isinstance(chunk, AudioChunk)
        handed_out = chunk.end_sample
        context.sent(chunk.samples)
    assert handed_out < 13_000
    assert (await collect(context)).report.cached_segments == 1


async def test_the_engine_knows_which_turns_began_with_cached_audio(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would refuse others where memory or time is short, but a turn that is heard goes on."""
    synthesizer = await start()
    await say(synthesizer, GREETING + MENU)
    submitted: list[Submit] = []
    send = WorkerClient.send

    def noted(self: WorkerClient, command: Command) -> None:
        if isinstance(command, Submit):
            submitted.append(command)
        send(self, command)

    monkeypatch.setattr(WorkerClient, "send", noted)
    await say(synthesizer, GREETING + REST)
    await say(synthesizer, REST)
    assert [each.continues for each in submitted] == [True, False]


async def test_a_phrase_is_stored_when_it_is_repeated(start: Start) -> None:
    """The first time nothing is kept."""
    synthesizer = await start(after=2)
    heard = [await say(synthesizer, GREETING) for _ in range(3)]
    assert [each.stored for each in heard] == [0, 1, 0]
    assert [each.report.cached_segments for each in heard] == [0, 0, 1]


async def test_another_voice_or_manner_is_not_cached(start: Start) -> None:
    """A phrase is never heard in a context that would sound different; probes reach the engine."""
    synthesizer = await start()
    await say(synthesizer, GREETING)
    for other in (
        replace(UNPACED, voice=synthesizer.voices.names()[5]),
        replace(UNPACED, language="en-us"),
        replace(UNPACED, speech=SpeechOptions(speed=1.2)),
        replace(UNPACED, speech=SpeechOptions(seed=5)),
        replace(UNPACED, speech=SpeechOptions(keeps_silence=True)),
        replace(UNPACED, cache="off"),
        replace(UNPACED, is_probe=True),
    ):
        assert (await say(synthesizer, GREETING, options=other)).report.cached_segments == 0
    assert (await say(synthesizer, GREETING)).report.cached_segments == 1


async def test_a_cached_phrase_is_stretched_for_its_listener(start: Start) -> None:
    """A speed that the engine has not is made after the cache, from one entry."""
    aligned = await start_aligned(start)
    options = replace(UNPACED, speech=SpeechOptions(speed=3.0))
    live, cached = [await say(aligned, GREETING, options=options) for _ in range(2)]
    assert cached.report.cached_segments == 1
    assert cached.pcm == live.pcm


async def test_flushes_and_breaks_are_answered_in_cached_text(start: Start) -> None:
    """A flush where its text ends, and a break with its own silence."""
    synthesizer = await start()
    options = replace(UNPACED, has_markup=True)
    text = f'{GREETING} <break time="500ms"/>{REST}'
    heard = [await say(synthesizer, text, options=options) for _ in range(2)]
    assert heard[1].report.cached_segments == 2
    assert heard[1].pcm == heard[0].pcm
    assert heard[1].words == heard[0].words
    context = await synthesizer.open(UNPACED)
    context.push_text(GREETING)
    context.flush(1)
    flushed = await first(context, ContextFlushed)
    assert isinstance(flushed, ContextFlushed)
    context.finish()
    assert (await collect(context)).report.reason == "complete"


async def test_a_context_that_failed_or_was_cut_stores_only_whole_segments(start: Start) -> None:
    """Half a sentence is never heard again."""
    synthesizer = await start(Limits(settle_s=NEVER_S, max_lead_s=0.3))
    context = await synthesizer.open(ContextOptions(language="en"))
    context.push_text(GREETING + REST)
    context.finish()
    await first(context, AudioChunk)
    context.cancel()
    await collect(context)
    phrases = phrases_of(context)
    assert phrases is not None and phrases.stored == 0
    await until(lambda: synthesizer.contexts_active == 0, "the context is gone")
    again = await say(synthesizer, GREETING + REST)
    assert again.report.cached_segments == 0


async def test_a_cached_phrase_that_fails_ends_its_context_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `internal`, and its row is free; the next context speaks the same text."""

    def fail(*_: object) -> list[WordTimestamp]:
        raise IndexError("a bug")

    synthesizer = await start()
    await say(synthesizer, GREETING)
    with monkeypatch.context() as patch:
        patch.setattr(Phrase, "timed_words", fail)
        context = await synthesizer.open(UNPACED)
        context.push_text(GREETING)
        context.finish()
        failure = await first(context, ContextFailed)
        assert failure.error.code is ErrorCode.INTERNAL
        assert (await collect(context)).report.reason == "error"
    assert worker_of(synthesizer).rows_used == 0
    assert (await say(synthesizer, GREETING)).report.cached_segments == 1


async def test_an_endless_text_of_cached_phrases_ends_at_the_limit(start: Start) -> None:
    """`max_audio_s` holds for cached audio, too."""
    synthesizer = await start(Limits(max_audio_s=5))
    await say(synthesizer, GREETING + MENU)
    heard = await say(synthesizer, GREETING + 20 * MENU)
    assert heard.report.reason == "limit"


async def test_words_said_otherwise_keep_their_letters(start: Start) -> None:
    """Another spelling of the same speech gets its own words, with the stored times."""
    synthesizer = await start()
    plain = await say(synthesizer, "Please hold the line.")
    marked = await say(synthesizer, "**Please** hold the line.")
    assert marked.report.cached_segments == 1
    assert marked.pcm == plain.pcm
    assert marked.words[0].word == Word("**Please**", 0, 10)
    assert [w.start_sample for w in marked.words] == [w.start_sample for w in plain.words]


async def test_a_phrase_tells_another_key_nothing(start: Start) -> None:
    """What a key says is fast for this key alone; what an admin has stored is so for every key."""
    synthesizer = await start()
    one, other = (replace(UNPACED, owner=owner) for owner in ("one", "other"))
    said = [await say(synthesizer, GREETING, options=each) for each in (one, one, other, other)]
    assert [heard.report.cached_segments for heard in said] == [0, 1, 0, 1]
    await say(synthesizer, REST, options=replace(UNPACED, owner="admin", cache="fill"))
    for options in (one, other):
        assert (await say(synthesizer, REST, options=options)).report.cached_segments == 1
