"""A context whose text is fed token by token, between the cache and a worker: who speaks what.

The events of the worker are scripted, so that the order in which they come is the test's.
"""

import asyncio
import itertools
import unittest.mock
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from testbed.scripted_time import run_scripted
from testbed.waiting import until
from voiceagent_tts.core import AudioChunk, Reading, Segment, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.cache import hold
from voiceagent_tts.plugins.cache.caching_worker import CachingWorker
from voiceagent_tts.plugins.cache.hold import PhraseHold
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseVoice,
    SegmentVariant,
    SynthesisParams,
    WordTime,
    keys_of,
    words_of,
)
from voiceagent_tts.plugins.cache.store import ContextPhrases, PhraseCache
from voiceagent_tts.seam.aligner_messages import AlignCommand, Aligned
from voiceagent_tts.seam.commands import (
    Append,
    Cancel,
    Command,
    Credit,
    Flush,
    Prepare,
    SpeechOptions,
    Submit,
)
from voiceagent_tts.seam.events import (
    AudioStep,
    Capabilities,
    ContextAudio,
    Done,
    Event,
    SegmentEnd,
)
from voiceagent_tts.synthesizer.context import Context, ContextState
from voiceagent_tts.synthesizer.events import (
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextWords,
    Source,
)
from voiceagent_tts.synthesizer.options import ContextOptions, ContextRequest, Limits
from voiceagent_tts.synthesizer.workers import EventHandler
from voiceagent_tts.text.segmenter import MAX_SEGMENT_CHARS
from voiceagent_tts.voices import Voice
from voiceagent_tts.word_times.processes import Aligners

PARAMS = SynthesisParams("qwen3", "m", "r", PhraseVoice("nova"), None, 1.0, None, None)
REQUEST = ContextRequest(
    ContextOptions(voice="nova", language="en", max_lead_s=0, has_markup=True),
    Voice("nova", "w"),
    "en",
    "token",
    SpeechOptions(),
    1.0,
)
FIRST, LATER = SegmentVariant("en", lacks_lead=True), SegmentVariant("en")
VARIANTS = (FIRST, LATER)
PHRASE_SAMPLES = 4800
LIVE_SAMPLES = 24_000
GREETING = "Hello you two."
MENU = "Press one."


class Worker:
    """A worker whose events the test sends, or which does what it is told to by `speak`."""

    capabilities = Capabilities("qwen3", "m", False, ("token",), ("en",), ("nova",), 1)

    def __init__(self) -> None:
        self.commands: list[Command | AlignCommand] = []
        self.samples_wanted: int | None = None
        self._done = self._char_end = self._samples = 0

    def attach(self, handler: EventHandler, on_free: Callable[[], None] | None = None) -> int:
        """Connect the context."""
        self._handler = handler
        return 1

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Record whether the context has to be cancelled."""
        if needs_cancel:
            self.commands.append(Cancel(context))

    def send(self, command: Command | AlignCommand) -> None:
        """Record a command."""
        if isinstance(command, Credit):
            self.samples_wanted = command.samples_wanted
        elif not isinstance(command, Prepare):
            self.commands.append(command)

    def answer(self, event: Event) -> None:
        """Send an event."""
        self._handler(event)

    def speak(self) -> None:
        """Do what was commanded, as an engine does: text is spoken to its end if it is flushed."""
        while self._done < len(self.commands):
            command = self.commands[self._done]
            self._done += 1
            match command:
                case Submit() | Append() if command.text:
                    self._char_end = command.char_base + len(command.text)
                    self.answer(live_audio(self._samples))
                    self._samples += LIVE_SAMPLES
                case Flush():
                    self.answer(SegmentEnd(1, self._char_end, self._samples))
                case Append():
                    self.answer(SegmentEnd(1, self._char_end, self._samples))
                    self.answer(Done(1, self._samples))
                case _:
                    pass

    @property
    def texts(self) -> str:
        """The text received."""
        return "|".join(c.text for c in self.commands if isinstance(c, Submit | Append))


class Opened:
    """A context with markup, in front of a cache with some phrases.

    Args:
        phrases: the texts.
        variants: where in a context each of them was spoken.
        cache: has the phrases; None for one that keeps them.
    """

    def __init__(
        self,
        *phrases: str,
        variants: Sequence[SegmentVariant] = VARIANTS,
        cache: PhraseCache | None = None,
    ) -> None:
        self.cache = cache or PhraseCache(1e6, 60, 1)
        for text in phrases:
            self.store(text, variants)
        self.worker = Worker()
        self.context = Context(
            CachingWorker(self.worker, phrases_of(self.cache), REQUEST),
            REQUEST,
            Limits(),
            Aligners({}).make_words,
            on_event=None,
            on_end=lambda context, report: None,
        )
        self.words: list[WordTimestamp] = []
        self.samples = 0
        self.done: ContextDone | None = None  # once it was read

    def store(self, text: str, variants: Sequence[SegmentVariant] = VARIANTS) -> None:
        """Store a phrase as it is spoken in some variants."""
        store(self.cache, text, b"\x00\x10" * PHRASE_SAMPLES, variants)

    async def play(self) -> list[ContextEvent]:
        """Let the engine play, and its listener hear it; return what came."""
        events: list[ContextEvent] = []
        for _ in range(20):
            await asyncio.sleep(0)
            for event in iter(self.context.next_event, None):
                events.append(event)
                match event:
                    case AudioChunk():
                        assert event.start_sample == self.samples
                        self.samples = event.end_sample
                        self.context.sent(event.samples)
                    case ContextWords(words):
                        self.words += words
                    case ContextDone():
                        self.done = event
                    case _:
                        pass
        return events

    async def end(self) -> None:
        """Let the worker and the engine speak all of the text; fail where a turn moves nothing."""
        while self.context.state < ContextState.ENDED:
            before = (len(self.worker.commands), self.samples)
            self.worker.speak()
            await self.play()
            is_over = self.context.state >= ContextState.ENDED
            assert is_over or before != (len(self.worker.commands), self.samples), "it hangs"

    def starts(self) -> dict[str, int]:
        """The words so far with their starts."""
        return {each.word.text: each.start_sample for each in self.words}


def store(
    cache: PhraseCache, text: str, pcm: bytes, variants: Sequence[SegmentVariant] = VARIANTS
) -> None:
    """Store a phrase with this audio, in some variants; its words begin 10 ms apart."""
    starts = range(0, 240 * len(words_of(Segment(text, 0))), 240)
    words = tuple(WordTime(start, None, 1.0) for start in starts)
    for variant in variants:
        key = next(keys_of((PARAMS,), variant, Segment(text, 0)))
        cache.store(key, Phrase(key.text, PARAMS.voice, pcm, words))


def phrases_of(cache: PhraseCache) -> ContextPhrases:
    """The phrases of a cache, as a context uses them."""
    return ContextPhrases(cache, PARAMS, needs_words=True, lacks_lead=True, has_pauses=False)


def live_audio(start_sample: int) -> AudioStep:
    """The audio of three words, on the worker's clock."""
    return AudioStep((ContextAudio(1, AudioChunk(start_sample, b"\x00\x10" * LIVE_SAMPLES)),))


async def test_an_iteration_of_the_loop_plays_little_audio() -> None:
    """A file's credit has no end: 20 s at once stopped the loop, for longer at another speed."""
    phrases = 100
    texts = [f"Hello number {number}." for number in range(phrases)]
    cache = PhraseCache(1e8, 60, 1)
    for text in texts:
        store(cache, text, bytes(20 * 2 * LIVE_SAMPLES // phrases))
    caching = CachingWorker(Worker(), phrases_of(cache), replace(REQUEST, feeding="segment"))
    played: list[int] = [0]

    def hear(event: Event | Aligned) -> None:
        if isinstance(event, AudioStep):
            played[-1] += sum(each.chunk.samples for each in event.rows)
        is_done[0] = isinstance(event, Done)

    is_done = [False]
    caching.attach(hear)
    caching.send(Credit(1, 0.0, 100 * LIVE_SAMPLES))
    start = 0
    for text in texts:
        more = text is not texts[-1]
        command = Append(1, text, start, more, "en")
        if not start:
            command = Submit(1, text, start, more, "nova", "en")
        caching.send(command)
        start += len(text)
    while not is_done[0]:
        await asyncio.sleep(0)
        played.append(0)
    assert sum(played) == 20 * LIVE_SAMPLES
    assert max(played) <= 1.5 * LIVE_SAMPLES


async def test_a_phrase_uses_the_credit_of_its_context() -> None:
    """The engine behind it does not run ahead of the listener by as much as the phrase is long."""
    cache, worker = Opened(GREETING).cache, Worker()
    caching = CachingWorker(worker, phrases_of(cache), replace(REQUEST, feeding="segment"))
    caching.attach(lambda event: None)
    caching.send(Submit(1, GREETING, 0, True, "nova", "en"))
    for wanted in (LIVE_SAMPLES, 2 * LIVE_SAMPLES):
        caching.send(Credit(1, 0.0, wanted))
        await asyncio.sleep(0)
        caching.send(Append(1, " It goes on.", len(GREETING), True, "en"))
        assert worker.samples_wanted == wanted - PHRASE_SAMPLES


async def test_live_text_goes_on_behind_a_phrase_on_one_clock() -> None:
    """Its worker counts from its own first sample, and is told that the turn goes on."""
    opened = Opened(GREETING, MENU)
    for token in (GREETING, " It", " goes", " on."):
        opened.context.push_text(token)
    await opened.play()
    first, *_ = opened.worker.commands
    assert isinstance(first, Submit)
    assert (first.text, first.continues, first.options.keeps_silence) == (" It", True, True)
    assert opened.worker.texts == " It| goes| on."
    opened.context.flush(1)
    opened.context.push_text(f" {MENU}")
    opened.context.finish()
    opened.worker.answer(live_audio(0))
    await opened.play()
    assert opened.samples == PHRASE_SAMPLES + LIVE_SAMPLES, "the live text has not ended"
    opened.worker.answer(SegmentEnd(1, len(f"{GREETING} It goes on."), LIVE_SAMPLES))
    await opened.play()
    assert opened.samples == 2 * PHRASE_SAMPLES + LIVE_SAMPLES
    assert opened.worker.commands[-2:] == [Flush(1), Append(1, "", 37, False, None)]
    opened.worker.answer(Done(1, LIVE_SAMPLES))
    await opened.play()
    assert opened.done is not None and opened.done.report.words.sources[Source.CACHE] == 5
    assert opened.starts()["Press"] == PHRASE_SAMPLES + LIVE_SAMPLES


@pytest.mark.parametrize("is_flushed", [True, False])
async def test_a_phrase_without_white_space_behind_it_has_its_times(is_flushed: bool) -> None:
    """Its last word cannot grow any more."""
    phrase = "你好。"
    opened = Opened(phrase)
    opened.context.push_text(phrase)
    if is_flushed:
        opened.context.flush(1)
    else:
        opened.context.push_text("再")
    await opened.play()
    assert opened.starts() == {"你": 0, "好。": 240}
    opened.context.abandon()


@pytest.mark.parametrize(
    ("deltas", "phrases", "live"),
    [
        (["The", " weather"], 0, "The| weather"),
        ([*GREETING, " ", "Pr"], 1, ""),
        ([*GREETING, " ", "Pr", "ess one.", " Or", " stay."], 2, " Or| stay."),
        (["Hello you two", " all"], 0, "Hello you two all"),
    ],
)
def test_a_phrase_is_recognized_as_it_is_written(
    deltas: list[str], phrases: int, live: str
) -> None:
    """Token by token; other text, and text behind a phrase, does not wait."""

    async def write() -> tuple[int, str]:
        opened = Opened(GREETING, f" {MENU}")
        for delta in deltas:
            opened.context.push_text(delta)
        await opened.play()
        try:
            return opened.samples, opened.worker.texts
        finally:
            opened.context.abandon()

    assert run_scripted(write()) == (phrases * PHRASE_SAMPLES, live)


async def test_text_that_begins_a_phrase_waits_and_is_given_up() -> None:
    """The worker gets it in one piece, once the rest of the phrase has not come."""
    opened = Opened(GREETING)
    opened.context.push_text("Hello")
    opened.context.push_text(" you")
    assert opened.worker.texts == ""
    await until(lambda: opened.worker.texts == "Hello you", "the text is live")
    opened.context.push_text(" all.")
    assert opened.worker.texts == "Hello you| all.", "what follows does not wait"
    opened.context.cancel()
    assert opened.worker.commands[-1] == Cancel(1)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("silent", ['<break time="200ms"/>', "🙂", " "])
async def test_silent_text_before_the_first_sound_is_none(
    silent: str, variant: SegmentVariant, is_flushed: bool
) -> None:
    """A phrase that has stood first is used, and one that has stood elsewhere is spoken live."""
    opened = Opened(GREETING, MENU, variants=[variant])
    opened.context.push_text(silent)
    if is_flushed:
        opened.context.flush(1)
    opened.context.push_text(f"{GREETING} {MENU} Bye.")
    opened.context.finish()
    await opened.end()
    done = opened.done
    assert done is not None
    assert (done.reason, done.report.cached_segments) == ("complete", int(variant is FIRST))


async def test_a_mistake_in_giving_up_ends_the_context_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though only the event loop is there to hear of it."""

    def fail(*_: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(PhraseHold, "give_up", fail)
    opened = Opened(GREETING)
    opened.context.push_text("Hello")
    await until(lambda: opened.context.state >= ContextState.ENDED, "the context has failed")
    (failed,) = [each for each in await opened.play() if isinstance(each, ContextFailed)]
    assert failed.error.code is ErrorCode.INTERNAL
    assert opened.done is not None and opened.done.reason == "error"


PHRASES_AT = {"first": [FIRST], "later": [LATER], "both": VARIANTS}
SPEECH = (f"{GREETING} {MENU}", f" {MENU}", " It goes on.", "Hello")
SILENCE = ("", "🙂 ", '<break time="200ms"/>')
TEXTS = st.tuples(st.sampled_from(SILENCE), st.sampled_from(SPEECH))
STEPS = st.one_of(
    TEXTS.map(lambda texts: f"push {''.join(texts)}"),
    st.sampled_from(["push 🙂 ", "flush", "wait", "turn", "worker", "drop"]),
)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.sampled_from(sorted(PHRASES_AT)),
    st.lists(STEPS, min_size=1, max_size=6),
    st.sampled_from(["finish", "finish", "finish", "cancel"]),
    st.one_of(st.just(10_000), st.integers(1, 40)),
)
def test_every_context_reaches_its_end(
    where: str, steps: list[str], end: str, ttl_ticks: int
) -> None:
    """Whatever the cache has at which moment: phrases come, expire and go at any of them."""
    asyncio.run(_run_to_the_end([f"store {where}", *steps, end], ttl_ticks))


async def _run_to_the_end(steps: list[str], ttl_ticks: int) -> None:
    ticks = itertools.count()
    opened = Opened(cache=PhraseCache(1e6, ttl_ticks, 1, clock=lambda: next(ticks)))
    for step in steps:
        match step.split(" ", 1):
            case ["push", text]:
                opened.context.push_text(text)
            case ["store", where]:
                for text in (GREETING, MENU):
                    opened.store(text, PHRASES_AT[where])
            case ["drop"]:
                opened.cache.memory.clear()
            case ["wait"]:
                with unittest.mock.patch.object(hold, "HOLD_S", 0.0):
                    opened.context.push_text("Hel")
                await asyncio.sleep(0)
            case ["flush"]:
                opened.context.flush(1)
            case ["turn"]:
                await opened.play()
            case ["worker"]:
                opened.worker.speak()
            case ["cancel"]:
                opened.context.cancel()
            case _:
                opened.context.finish()
    await opened.end()
    await opened.play()
    assert opened.done is not None and opened.done.reason in ("complete", "cancelled")


async def test_a_reading_that_is_divided_is_no_phrase() -> None:
    """A long word is held in parts; the text of a reading inside it goes to the engine whole."""
    cache = Opened(GREETING).cache
    held = Segment(24 * "p" + 240 * "x" + " end.", 0, (Reading(24, 264, GREETING),))
    key = next(keys_of((PARAMS,), FIRST, held.part(0, MAX_SEGMENT_CHARS)))
    cache.store(key, Phrase(key.text, PARAMS.voice, bytes(9_600), (WordTime(0, None, 1),)))
    hold = PhraseHold(phrases_of(cache), "en")
    parts = [*hold.push(held, 100.0), *hold.flush()]
    assert [(part.segment, part.phrase) for part in parts] == [(held, None)]


async def test_text_is_held_for_40_ms_and_keeps_its_place() -> None:
    """However often more of it comes; once it is given up, no timer is left."""
    cache = Opened(GREETING).cache
    hold = PhraseHold(phrases_of(cache), "en")
    assert hold.push(Segment("Hello", 0), 100.0) == hold.push(Segment(" you", 5), 100.03) == []
    assert hold.due_at == pytest.approx(100.04)
    assert [part.segment for part in hold.give_up()] == [Segment("Hello you", 0)]
    assert hold.due_at is None
    hold.flush()
    said = hold.push(Segment(f"{GREETING} It goes", 9), 200.0)
    assert [part.segment.char_start for part in said] == [9, 9 + len(GREETING)]
