"""A context between its engine, its aligner and its reader: what each of them gets, and when.

The events are scripted, so that the order in which they come is the test's.
"""

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest

from testbed.protocol_ends import session_limits
from testbed.scripted_context import LIMITS, ScriptedWorker, open_context
from testbed.waiting import until
from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    Cut,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientConnection
from voiceagent_tts.protocol.messages import AudioFormat, ContextOpen, DoneMessage, SampleRate
from voiceagent_tts.protocol.server_connection import ServerConnection
from voiceagent_tts.seam.aligner_messages import AlignCommand, Aligned
from voiceagent_tts.seam.commands import (
    Cancel,
    Credit,
    Feeding,
    Submit,
)
from voiceagent_tts.seam.events import (
    AudioStep,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
    Words,
)
from voiceagent_tts.server.socket_context import ContextWriter
from voiceagent_tts.synthesizer.context import Context, ContextState
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextReport,
    ContextWords,
    ContextWordsMoved,
    Source,
)
from voiceagent_tts.synthesizer.options import ContextOptions, Limits
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times.aligned_words import AlignedWords
from voiceagent_tts.word_times.aligners import ContextAligners, OnAlignerEvent, VoiceLevels

TEXT = "One two."
ONE, TWO = Word("One", 0, 3), Word("two.", 4, 8)


def at(word: Word, seconds: float) -> WordTimestamp:
    """An exact time of a word."""
    return WordTimestamp(word, round(seconds * SAMPLE_RATE_HZ), None, 1.0)


class Engine(ScriptedWorker):
    """A worker whose events the test sends."""

    def __init__(self) -> None:
        super().__init__()
        self._made_samples = 0

    def make(self, seconds: float, *, is_loud: bool = False) -> None:
        """Send audio: silence, or a tone."""
        samples = round(seconds * SAMPLE_RATE_HZ)
        tone = (8_000 * is_loud * np.sin(np.arange(samples) / 20)).astype("<i2")
        chunk = AudioChunk(self._made_samples, tone.tobytes())
        self._made_samples = chunk.end_sample
        self.answer(AudioStep((ContextAudio(1, chunk),)))

    def end_segment(self, char_end: int) -> None:
        """Report that the text before `char_end` is spoken."""
        self.answer(SegmentEnd(1, char_end, self._made_samples))

    @property
    def granted_s(self) -> list[float]:
        """Credit so far, in seconds of audio."""
        credits = [each for each in self.commands if isinstance(each, Credit)]
        return [each.samples_wanted / SAMPLE_RATE_HZ for each in credits]


class Aligner:
    """`Aligners` with one process, whose answers the test sends."""

    source = Source.ONLINE
    worst_lag_s = 0.0
    is_active, number = True, 1

    def __init__(self) -> None:
        self.told: list[str | int] = []
        """Words that it was asked for, and ends of segments in the text."""

    def attach(self, on_event: OnAlignerEvent, recording: str) -> ContextAligners:
        """Connect the context."""
        self._on_event = on_event
        handles: list[Any] = [self]
        return ContextAligners(handles, recording, VoiceLevels())

    def answer(self, *words: WordTimestamp) -> None:
        """Send final times of words."""
        self._on_event(self.source, Aligned(1, words, (), 0))

    def release(self) -> None:
        """Stop following."""
        self.is_active = False

    def follow(self, language: str, voice: str) -> None:
        """Follow a context."""

    def expect(self, words: list[Word]) -> None:
        """Receive words."""
        self.told += [word.text for word in words]

    def push_audio(self, chunk: AudioChunk) -> None:
        """Receive audio."""

    def send(self, command: AlignCommand) -> None:
        """Receive the end of a segment, or of the text."""
        if isinstance(command, SegmentEnd):
            self.told.append(command.char_end)


class Opened:
    """A context, what is around it, and how often its reader was called."""

    def __init__(
        self,
        aligner: Aligner | None = None,
        *,
        options: ContextOptions | None = None,
        stretch: float = 1.0,
        limits: Limits = LIMITS,
        feeding: Feeding = "segment",
    ) -> None:
        self.engine, self.calls, self.reports = Engine(), 0, list[ContextReport]()
        self.context = open_context(
            self.engine,
            options or ContextOptions(language="en", max_lead_s=2.0),
            feeding=feeding,
            stretch=stretch,
            limits=limits,
            make_words=None if aligner is None else partial(AlignedWords, aligner.attach),
            on_event=self._count,
            on_report=self.reports.append,
        )

    def _count(self) -> None:
        self.calls += 1

    def read(self) -> list[ContextEvent]:
        """All events that wait."""
        return list(iter(self.context.next_event, None))


# The reader.


async def test_words_overtake_the_audio_that_waits() -> None:
    """Words leave first and together, audio and answers in order; each is announced once."""
    opened = Opened()
    context, engine = opened.context, opened.engine
    context.push_text(TEXT)
    context.flush(1)
    assert (opened.calls, context.next_event()) == (0, None)
    engine.answer(Words(1, (at(ONE, 0.0),)))
    engine.make(0.5)
    engine.answer(Words(1, (at(TWO, 0.5),)))
    engine.make(0.5)
    engine.end_segment(len(TEXT))
    assert opened.calls == 5
    announced: list[tuple[bool, bool]] = []
    events: list[ContextEvent | None] = []
    while not events or events[-1] is not None:
        announced.append((context.has_words_next, context.has_audio_next))
        events.append(context.next_event())
    words, *audio, flushed, nothing = events
    assert words == ContextWords((at(ONE, 0.0), at(TWO, 0.5)))
    assert [type(each) for each in audio] == [AudioChunk, AudioChunk]
    assert (flushed, nothing) == (ContextFlushed(1, SAMPLE_RATE_HZ), None)
    assert announced == [(True, False), (False, True), (False, True), (False, False)] + [
        (False, False)
    ]
    context.abandon()


# Flushes.


async def test_a_flush_waits_for_its_words_and_keeps_the_end_of_its_audio() -> None:
    """Audio of later text that comes before the words does not move the end."""
    aligner = Aligner()
    opened = Opened(aligner)
    context, engine = opened.context, opened.engine
    context.push_text(TEXT)
    context.flush(1)
    engine.make(1.0)
    assert not any(isinstance(each, ContextFlushed) for each in opened.read()), "it is not spoken"
    engine.end_segment(len(TEXT))
    context.push_text(" Three.")
    context.flush(2)
    await until(lambda: not context._can_read, "the text is divided")
    engine.make(1.0)
    assert not any(isinstance(each, ContextFlushed) for each in opened.read()), "no words"
    aligner.answer(at(ONE, 0.1))
    assert not any(isinstance(each, ContextFlushed) for each in opened.read()), "one is missing"
    aligner.answer(at(TWO, 0.5))
    assert opened.read()[-1] == ContextFlushed(1, SAMPLE_RATE_HZ)
    aligner.answer(at(Word("Three.", 9, 15), 1.2))
    engine.end_segment(len(TEXT) + 7)
    assert opened.read()[-1] == ContextFlushed(2, 2 * SAMPLE_RATE_HZ)
    context.abandon()


async def test_flushes_of_the_same_text_are_answered_together() -> None:
    """In order and once; that of no text at once."""
    opened = Opened()
    context, engine = opened.context, opened.engine
    context.flush(0)
    assert opened.read() == [ContextFlushed(0, 0)]
    context.push_text(TEXT)
    context.flush(1)
    context.flush(2)
    await until(lambda: not context._can_read, "the text is divided")
    engine.answer(Words(1, (at(ONE, 0.0), at(TWO, 0.5))))
    engine.make(1.0)
    engine.end_segment(len(TEXT))
    answers = [each for each in opened.read() if isinstance(each, ContextFlushed)]
    assert [each.flush_id for each in answers] == [1, 2]
    assert opened.read() == []
    context.abandon()


@pytest.mark.parametrize("is_flushed", [True, False])
async def test_stretched_audio_has_left_when_its_text_is_spoken(*, is_flushed: bool) -> None:
    """Not only with the next text; a flush ends where its audio does."""
    opened = Opened(stretch=0.8)
    context, engine = opened.context, opened.engine
    context.push_text(f"{TEXT} Three.")
    if is_flushed:
        context.flush(1)
        context.push_text(" And")  # is spoken with what comes after it
    await until(lambda: len(engine.commands) > 1, "the text is spoken")
    engine.answer(Words(1, (at(ONE, 0.0), at(TWO, 0.4))))
    engine.make(0.8, is_loud=True)
    engine.end_segment(len(TEXT))
    engine.answer(Words(1, (at(Word("Three.", 9, 15), 0.8),)))
    engine.make(0.8, is_loud=True)
    engine.end_segment(len(f"{TEXT} Three."))
    events = opened.read()
    samples = sum(each.samples for each in events if isinstance(each, AudioChunk))
    assert samples == pytest.approx(2 * SAMPLE_RATE_HZ, abs=ms_to_samples(15))
    if is_flushed:
        assert events[-1] == ContextFlushed(1, samples)
    context.abandon()


# Credit.


async def test_credit_comes_with_the_first_text_and_then_with_playback() -> None:
    """Without text none; while audio plays, more is granted without another event."""
    opened = Opened(options=ContextOptions(language="en", max_lead_s=0.2))
    context, engine = opened.context, opened.engine
    context.push_text("One")
    assert engine.granted_s == [], "no sentence is complete"
    context.flush(1)
    assert [type(each) for each in engine.commands[-2:]] == [Submit, Credit]
    assert engine.granted_s == [0.2]
    engine.make(0.2)
    context.sent(ms_to_samples(200))
    await until(lambda: len(engine.granted_s) > 1, "credit was granted")
    assert engine.granted_s[1] >= 0.25
    granted = len(engine.granted_s)
    context.cancel()
    await asyncio.sleep(0)
    assert len(engine.granted_s) == granted and isinstance(engine.commands[-1], Cancel)


@pytest.mark.parametrize(
    ("max_lead_s", "granted_s"),
    [(2.0, 2.0), (None, 8.0), (60.0, 10.0), (0.0, 10.0), (0.01, 0.2)],
    ids=["asked for", "the server's", "over the unsent limit", "unpaced", "below the minimum"],
)
async def test_the_first_credit_is_the_lead(max_lead_s: float | None, granted_s: float) -> None:
    """The client's or else the server's, within the bounds; more comes after a step of playback."""
    opened = Opened(options=ContextOptions(language="en", max_lead_s=max_lead_s))
    opened.context.push_text(TEXT)
    opened.context.flush(1)
    opened.engine.make(0.1)
    opened.context.sent(ms_to_samples(100))
    assert opened.engine.granted_s == [granted_s]
    opened.context.abandon()


async def test_credit_names_the_end_of_playback() -> None:
    """Sent audio ends in its own time, also while more of it is sent."""
    opened = Opened()
    context, engine = opened.context, opened.engine
    context.push_text(TEXT)
    context.flush(1)
    loop = asyncio.get_running_loop()
    engine.make(2.0)
    before = loop.time()
    context.sent(2 * SAMPLE_RATE_HZ)
    after = loop.time()
    await until(lambda: len(engine.granted_s) > 1, "credit was granted")
    last = [each for each in engine.commands if isinstance(each, Credit)][-1]
    assert before + 2.0 <= last.playout_end <= after + 2.0
    context.abandon()


async def test_breaks_count_as_audio() -> None:
    """A text of breaks alone ends at the limit of a context's audio, as speech does."""
    options = ContextOptions(language="en", has_markup=True, max_lead_s=0)
    opened = Opened(options=options, limits=Limits(max_audio_s=15.0))
    opened.context.push_text("One." + 3 * '<break time="10s"/>')
    opened.context.flush(1)
    await until(lambda: not opened.context._can_read, "the text is divided")
    opened.engine.make(1.0)
    opened.engine.end_segment(len(opened.context.text))
    events = [each async for each in opened.context]
    assert (
        sum(each.samples for each in events if isinstance(each, AudioChunk)) == 21 * SAMPLE_RATE_HZ
    )
    assert not any(isinstance(each, ContextFlushed) for each in events)
    assert isinstance(events[-1], ContextDone) and events[-1].reason == "limit"


# Cuts.


async def estimated(aligner: Aligner, *, is_whole: bool = True) -> tuple[Opened, int]:
    """A context with 2 s of audio whose words have left by estimates; the start of the last.

    Args:
        aligner: has not answered.
        is_whole: whether this is all audio of the text.
    """
    opened = Opened(aligner)
    context, engine = opened.context, opened.engine
    context.push_text(TEXT)
    context.flush(1)
    engine.make(2.0, is_loud=True)
    if is_whole:
        engine.end_segment(len(TEXT))
    context.sent(2 * SAMPLE_RATE_HZ)
    words: list[WordTimestamp] = []

    def both_have_left() -> bool:
        words.extend(w for e in opened.read() if isinstance(e, ContextWords) for w in e.words)
        return len(words) == 2

    await until(both_have_left, "the words have left by estimates")
    return opened, words[1].start_sample


async def test_a_cut_goes_by_the_best_times_known() -> None:
    """A word that left by an estimate was not heard, if its true time turns out to be later."""
    aligner = Aligner()
    opened, last_start = await estimated(aligner)
    context = opened.context
    played_samples = last_start + ms_to_samples(20)
    assert context.cut(played_samples).text_spoken == TEXT
    aligner.answer(at(ONE, 0.0), at(TWO, 1.5))
    assert context.cut(played_samples).text_spoken == "One"
    cut = context.cut(played_samples)
    context.cancel(played_samples)
    assert (cut.text_spoken, cut.text_remaining) == ("One", " two.")
    *_, cancelled, done = opened.read()
    assert cancelled == ContextCancelled(cut, "played_ms") and isinstance(done, ContextDone)


async def test_better_times_of_words_that_have_left_overtake_the_audio() -> None:
    """They come as soon as an aligner has found them, behind the words themselves."""
    aligner = Aligner()
    opened, _ = await estimated(aligner)
    opened.engine.make(0.5)
    calls = opened.calls
    moved = at(ONE, 0.1), at(TWO, 1.5)
    aligner.answer(*moved)
    assert opened.calls == calls + 1
    assert opened.context.has_words_next and not opened.context.has_audio_next
    assert opened.context.next_event() == ContextWordsMoved(moved)
    opened.context.abandon()


async def test_better_times_that_are_sent_lie_inside_the_audio() -> None:
    """A word that the aligner has not heard lies for it at the end of the audio."""
    aligner = Aligner()
    opened, _ = await estimated(aligner)
    aligner.answer(at(ONE, 0.1), at(TWO, 2.0))
    event = opened.context.next_event()
    assert isinstance(event, ContextWordsMoved)
    assert [each.start_sample for each in event.words] == [2400, 2 * SAMPLE_RATE_HZ - 1]
    opened.context.abandon()


async def test_a_better_time_may_lie_in_audio_to_come() -> None:
    """The word before it is longer than its estimate: a cut at the audio's end is before it."""
    aligner = Aligner()
    opened, _ = await estimated(aligner, is_whole=False)
    moved = at(ONE, 0.1), at(TWO, 3.5)
    aligner.answer(*moved)
    assert opened.context.next_event() == ContextWordsMoved(moved)
    opened.context.abandon()


async def test_better_times_lie_inside_the_audio() -> None:
    """An aligner may find the last word behind it, but all words of a played text were heard."""
    aligner = Aligner()
    opened, _ = await estimated(aligner)
    opened.context.finish()
    aligner.answer(at(ONE, 0.0), at(TWO, 2.5))
    opened.engine.answer(Done(1, 2 * SAMPLE_RATE_HZ))
    assert opened.context.state < ContextState.ENDED, "the aligner may still answer"
    assert opened.context.cut(2 * SAMPLE_RATE_HZ).text_spoken == TEXT
    await until(lambda: opened.context.state is ContextState.ENDED, "all has come")
    done = opened.read()[-1]
    assert isinstance(done, ContextDone)
    final = done.words_final
    assert final is not None and final[-1].start_sample == 2 * SAMPLE_RATE_HZ - 1


@pytest.mark.parametrize(("emoji", "more"), [("", ""), ("\N{WAVING HAND SIGN}", " "), ("", "Any")])
async def test_the_last_word_of_a_run_that_has_ended_is_announced(emoji: str, more: str) -> None:
    """An engine that is fed tokens speaks a sentence to its end, while the LLM pauses behind it."""
    aligner, said = Aligner(), "Your table is booked."
    opened = Opened(aligner, feeding="token")
    opened.context.push_text(f"{said} {emoji}{more}")
    opened.engine.make(2.0, is_loud=True)
    opened.engine.end_segment(len(said))
    assert aligner.told[-1] == len(said), "no word of it is asked for with those behind it"
    assert aligner.told[:-1] == [*said.split()[:-1], f"booked. {emoji}".strip()]
    words = enumerate(split_words(said))
    aligner.answer(*(at(word, 0.4 * place) for place, word in words))
    opened.context.sent(2 * SAMPLE_RATE_HZ)
    assert opened.context.cut(2 * SAMPLE_RATE_HZ).text_spoken.startswith(said)
    opened.context.abandon()


def sent_by(context: Context, sample_rate: SampleRate) -> DoneMessage:
    """Send what a context has to send, to its end."""
    client, connection = ClientConnection(), ServerConnection(session_limits())
    client.receive(*connection.ready(session_id="s", model="m"))
    audio = AudioFormat(sample_rate=sample_rate)
    (message,) = connection.receive(client.open("c", audio=audio))
    assert isinstance(message, ContextOpen)
    connection.opened("c", voice="v", language="en", seed=None, queue_ms=0)
    metrics = SimpleNamespace(frame_gap=SimpleNamespace(observe=lambda _: None))
    state = SimpleNamespace(metrics=metrics, audio_filter=None)
    socket = SimpleNamespace(connection=connection, state=state, mark_ready=lambda _: None)
    writer = ContextWriter(cast("Any", socket), message, context)
    last: str | bytes = ""
    while (outgoing := writer.next_message()) is not None:
        outgoing.on_sent()
        *_, last = outgoing.messages
        if writer.done is not None:
            break
    return DoneMessage.model_validate_json(last)


@pytest.mark.parametrize("sample_rate", get_args(SampleRate))
async def test_the_end_of_the_audio_is_the_end_of_the_text(sample_rate: SampleRate) -> None:
    """At `done.audio_ms` all words were heard, however long the audio is, and at any rate.

    An engine may leave a word unsaid, which then has no length; another one ends with the audio.
    """
    text = f"{TEXT} "
    for samples in range(SAMPLE_RATE_HZ, SAMPLE_RATE_HZ + 24):
        for last in (at(TWO, 1.5), replace(at(TWO, 0.5), end_sample=samples)):
            opened = Opened(options=ContextOptions(language="en", max_lead_s=0))
            opened.context.push_text(text)
            opened.context.finish()
            opened.engine.answer(Words(1, (at(ONE, 0.0), last)))
            opened.engine.make(samples / SAMPLE_RATE_HZ)
            opened.engine.end_segment(len(text))
            opened.engine.answer(Done(1, samples))
            done = sent_by(opened.context, sample_rate)
            for played_ms in (done.audio_ms, 10**9):
                cut = opened.context.cut(ms_to_samples(played_ms))
                assert cut == Cut(text, "", is_partial=False), (samples, played_ms)


# Failures.


async def test_a_lost_text_leaves_the_audio_of_the_words_that_surely_sounded() -> None:
    """They count as spoken, and whoever resumes the turn goes on behind them."""
    aligner = Aligner()
    opened = Opened(aligner)
    opened.context.push_text(TEXT)
    opened.context.flush(1)
    opened.engine.make(0.5, is_loud=True)
    sure = replace(at(ONE, 0.1), end_sample=ms_to_samples(900))
    aligner.answer(sure)
    for _ in range(10):
        opened.engine.make(0.1, is_loud=True)
    opened.engine.answer(Failed(1, ErrorCode.TEXT_LOST, "the text is lost"))
    *audio, failed, _ = (each for each in opened.read() if not isinstance(each, ContextWords))
    assert isinstance(failed, ContextFailed) and isinstance(failed.error, VoiceAgentError)
    assert failed.error.spoken_chars == len("One")
    ends = [each.end_sample for each in audio if isinstance(each, AudioChunk)]
    assert ends[-1] == sure.end_sample


async def test_a_cancelled_failure_is_a_cancel() -> None:
    """The client was not told of the failure, and the report has no code."""
    opened = Opened()
    opened.context.push_text(TEXT)
    opened.context.fail(EngineError("it broke"))
    opened.context.cancel()
    *others, done = opened.read()
    assert not any(isinstance(each, ContextFailed) for each in others)
    assert isinstance(done, ContextDone) and done.reason == "cancelled"
    (report,) = opened.reports
    assert (report.reason, report.code) == ("cancelled", None)
