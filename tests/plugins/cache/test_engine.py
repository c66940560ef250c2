"""A context whose text is fed token by token, between the cache and a worker: who speaks what.

The events of the worker are scripted, so that the order in which they come is the test's.
"""

import asyncio
from collections.abc import Callable

import pytest

from testbed.waiting import until
from voiceagent_tts.core import AudioChunk, Segment, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.cache.engine import PhraseEngine
from voiceagent_tts.plugins.cache.phrases import (
    ContextPhrases,
    Manner,
    Phrase,
    Place,
    Spoken,
    WordTime,
    key_of,
    words_of,
)
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.seam.aligner_messages import AlignCommand
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
from voiceagent_tts.synthesizer.aligners import Aligners
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextEvent, ContextFailed, ContextWords, Source
from voiceagent_tts.synthesizer.options import ContextOptions, ContextRequest, Limits
from voiceagent_tts.synthesizer.workers import EventHandler
from voiceagent_tts.voices import Voice

MANNER = Manner("qwen3", "m", "r", Spoken("nova"), None, 1.0, None, None)
REQUEST = ContextRequest(
    ContextOptions(voice="nova", language="en", max_lead_s=0),
    Voice("nova", "w"),
    "en",
    "token",
    SpeechOptions(),
    1.0,
)
PHRASE_SAMPLES = 4800
LIVE_SAMPLES = 24_000
GREETING = "Hello you two."
MENU = "Press one."


class Worker:
    """A worker whose events the test sends."""

    capabilities = Capabilities("qwen3", "m", False, ("token",), ("en",), ("nova",), 1)

    def __init__(self) -> None:
        self.commands: list[Command | AlignCommand] = []

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
        if not isinstance(command, Prepare | Credit):
            self.commands.append(command)

    def answer(self, event: Event) -> None:
        """Send an event."""
        self._handler(event)

    @property
    def texts(self) -> str:
        """The text received."""
        return "|".join(c.text for c in self.commands if isinstance(c, Submit | Append))


class Opened:
    """A context in front of a cache with some phrases."""

    def __init__(self, *phrases: str) -> None:
        cache = PhraseCache(1e6, 60, 1)
        for text in phrases:
            words = tuple(WordTime(240 * n, None, 1.0) for n, _ in enumerate(_words(text)))
            for place in (Place("en"), Place("en", lacks_lead=True)):
                key = key_of(MANNER, place, Segment(text, 0))
                assert key is not None
                cache.store(
                    key, Phrase(key.text, MANNER.spoken, b"\x00\x10" * PHRASE_SAMPLES, words)
                )
        own = ContextPhrases(cache, MANNER, needs_words=True, lacks_lead=True, has_pauses=False)
        self.worker = Worker()
        self.context = Context(
            PhraseEngine(self.worker, own, REQUEST),
            REQUEST,
            Limits(),
            Aligners({}).attach,
            on_event=None,
            on_end=lambda context, report: None,
        )
        self.words: list[WordTimestamp] = []
        self.samples = 0

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
                    case _:
                        pass
        return events

    def starts(self) -> dict[str, int]:
        """The words so far with their starts."""
        return {each.word.text: each.start_sample for each in self.words}


def _words(text: str) -> list[Word]:
    return words_of(Segment(text, 0))


def live_audio(start_sample: int) -> AudioStep:
    """The audio of three words, on the worker's clock."""
    return AudioStep((ContextAudio(1, AudioChunk(start_sample, b"\x00\x10" * LIVE_SAMPLES)),))


async def test_an_answer_comes_in_a_later_turn_as_from_any_worker() -> None:
    """So the context knows the words of a text before the times of its words."""
    opened = Opened(GREETING)
    opened.context.push_text(GREETING)
    opened.context.finish()
    assert opened.context.next_event() is None
    await opened.play()
    assert (opened.samples, opened.worker.commands) == (PHRASE_SAMPLES, [])
    done = opened.context.close()
    assert (done.reason, done.report.cached_segments) == ("complete", 1)
    assert done.report.words.sources == {Source.CACHE: 3}
    assert done.report.milestones.stages_s == {}, "no engine was asked"


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
    assert opened.context.close().report.words.sources[Source.CACHE] == 5
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


async def test_a_dash_between_two_phrases_does_no_harm() -> None:
    """It is a part of the word before it, though the cache has it with the word behind it."""
    opened = Opened(GREETING, f" - {MENU}")
    opened.context.push_text(f"{GREETING} - {MENU}")
    opened.context.finish()
    await opened.play()
    done = opened.context.close()
    assert done.reason == "complete"
    assert [each.word.text for each in opened.words][-2:] == ["Press", "one."]
    assert done.report.cached_segments == 2


async def test_text_that_begins_a_phrase_waits_and_is_given_up() -> None:
    """The worker gets it in one piece, once the rest of the phrase has not come."""
    opened = Opened(GREETING)
    opened.context.push_text("Hello")
    opened.context.push_text(" you")
    assert opened.worker.texts == ""
    await until(lambda: opened.worker.texts == "Hello you", "the text is live")
    opened.context.cancel()
    assert opened.worker.commands[-1] == Cancel(1)


async def test_a_context_that_ends_while_text_is_held_tells_the_worker_nothing() -> None:
    """Nor does its timer act later."""
    opened = Opened(GREETING)
    opened.context.push_text("Hello")
    opened.context.cancel()
    assert opened.worker.commands == []
    await asyncio.sleep(0)
    assert opened.worker.commands == []


async def test_a_mistake_ends_the_context_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `internal`, as one in a worker's events."""

    def fail(*_: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(Phrase, "place", fail)
    opened = Opened(GREETING)
    opened.context.push_text(GREETING)
    opened.context.finish()
    (failed,) = [each for each in await opened.play() if isinstance(each, ContextFailed)]
    assert failed.error.code is ErrorCode.INTERNAL
    assert opened.context.close().reason == "error"
