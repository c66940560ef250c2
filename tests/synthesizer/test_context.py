"""A context: timers, credit, cuts and ends, on the real espeak worker."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from testbed.contexts import SENTENCE, UNPACED, collect, first, made_samples
from testbed.servers import StartSynthesizer, worker_of
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.synthesizer import segments
from voiceagent_tts.synthesizer.context import EventQueue
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextFlushed,
    ContextReport,
    ContextWords,
    Source,
)
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.words import Words
from voiceagent_tts.synthesizer.workers import Supervisor
from voiceagent_tts.word_times.processes import Aligners

# Text in


async def test_speaks_a_text(start_synthesizer: StartSynthesizer) -> None:
    """All words, then `ContextDone` with a report that agrees with the events."""
    reports: list[ContextReport] = []
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(UNPACED, on_end=lambda _, report: reports.append(report))
    assert synthesizer.contexts_active == 1
    context.push_text(SENTENCE)
    context.finish()
    context.finish()
    spoken = await collect(context)
    assert spoken.words == SENTENCE.split()
    report = spoken.report
    assert (report.reason, report.chars) == ("complete", len(SENTENCE))
    assert (report.audio_samples, report.discarded_samples) == (spoken.samples, 0)
    assert report.ttfa_s is not None
    assert 0 < report.ttfa_s <= report.gen_s
    assert reports == [report]
    assert synthesizer.contexts_active == worker_of(synthesizer).rows_used == 0


async def test_silence_settles_a_sentence(start_synthesizer: StartSynthesizer) -> None:
    """A pause after a full stop ends the sentence, but not the context."""
    synthesizer = await start_synthesizer(Limits(settle_s=0.05))
    context = await synthesizer.open(UNPACED)
    context.push_text("Hello there.")
    assert isinstance(await first(context, AudioChunk), AudioChunk)
    context.push_text(" And more.")
    context.finish()
    assert (await collect(context)).report.reason == "complete"


async def test_a_flush_does_not_wait_for_an_estimate(start_synthesizer: StartSynthesizer) -> None:
    """Without any aligner, the end of a segment publishes its words, however late the estimates."""
    synthesizer = await start_synthesizer(throttle={"without_words": True})
    context = await synthesizer.open(replace(UNPACED, speech=SpeechOptions(speed=2.0)))
    context.push_text(SENTENCE)
    context.flush(1)
    words: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in context:
            if isinstance(event, ContextWords):
                words += [timestamp.word.text for timestamp in event.words]
            elif isinstance(event, ContextFlushed):
                break
    assert words == SENTENCE.split()


async def test_a_context_does_not_take_text_without_end(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signs that nobody says are never waiting, but each cut repeats them."""
    monkeypatch.setattr(segments, "MAX_CONTEXT_CHARS", 500)
    synthesizer = await start_synthesizer(Limits(max_text_chars=100))
    context = await synthesizer.open(UNPACED)
    for flush_id in range(5):
        context.push_text("* " * 50)
        context.flush(flush_id)
        await first(context, ContextFlushed)
    with pytest.raises(InvalidRequestError) as refused:
        context.push_text("*")
    assert refused.value.code is ErrorCode.TEXT_TOO_LONG
    assert len(context.text) == 500
    context.finish()
    assert (await collect(context)).words == []


# Ends


@pytest.mark.parametrize("text", ["", "Hello there. And then"])
async def test_a_context_without_text_goes_idle(
    start_synthesizer: StartSynthesizer, text: str
) -> None:
    """A context without more text ends; the text that it has is spoken to the end."""
    synthesizer = await start_synthesizer(Limits(context_idle_s=0.1))
    context = await synthesizer.open(UNPACED)
    context.push_text(text)
    spoken = await collect(context)
    assert spoken.report.reason == "idle"
    assert spoken.words == text.split()


async def test_audio_has_a_limit(start_synthesizer: StartSynthesizer) -> None:
    """More audio than `max_audio_s` ends a context with reason `limit` and frees its row.

    The rest of the audio may still wait to be played when more text is refused.
    """
    synthesizer = await start_synthesizer(Limits(max_audio_s=3))
    context = await synthesizer.open(UNPACED)
    context.push_text(SENTENCE * 100)
    await until(lambda: not worker_of(synthesizer).rows_used, "the row is free")
    with pytest.raises(InvalidRequestError, match=r"max_audio_s \(3 s\)") as refused:
        context.push_text("more")
    assert refused.value.code is ErrorCode.CONTEXT_CLOSED
    spoken = await collect(context)
    assert spoken.report.reason == "limit"
    # The chunk that exceeds the limit is the last: at most one second more.
    assert 3 * SAMPLE_RATE_HZ < spoken.samples <= 4 * SAMPLE_RATE_HZ
    assert context.cut(spoken.samples).text_remaining


# Cuts.


async def test_a_cut_goes_by_the_clock_without_a_position(
    start_synthesizer: StartSynthesizer,
) -> None:
    """Of all that was sent, only what has had time to play was heard."""
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(UNPACED)
    text = " ".join([SENTENCE] * 20)  # a minute, so that a late test is not late enough to hear all
    context.push_text(text)
    context.finish()
    spoken = await collect(context)
    assert context.cut().text_spoken != context.cut(spoken.samples).text_spoken == text


async def test_only_the_end_leaves_after_a_cancel(start_synthesizer: StartSynthesizer) -> None:
    """Audio that is reported as sent after the cancel publishes no words.

    Another context's words are published when their deadline comes.
    """
    synthesizer = await start_synthesizer(throttle={"without_words": True})
    contexts = [await synthesizer.open(UNPACED) for _ in range(2)]
    for context in contexts:
        context.push_text(f"{SENTENCE} {SENTENCE} ")
        await first(context, ContextWords)
        await until(lambda c=context: c.has_audio_next, "it has audio")
    cancelled, neighbour = contexts
    cancelled.cancel()
    assert isinstance(cancelled.next_event(), ContextCancelled)
    for context in contexts:
        context.sent(SAMPLE_RATE_HZ)
    await until(lambda: neighbour.has_words_next, "the next words must leave")
    done = cancelled.next_event()
    assert isinstance(done, ContextDone) and done.reason == "cancelled"
    assert cancelled.next_event() is None
    neighbour.abandon()


async def test_a_context_whose_words_fail_can_be_abandoned(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has left needs no cut; its row is free whatever its words are."""
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(UNPACED)
    context.push_text(SENTENCE * 50)

    def fail(words: Words) -> None:
        raise IndexError

    monkeypatch.setattr(Words, "best", property(fail))
    context.abandon()
    await until(lambda: not worker_of(synthesizer).rows_used, "the row is free")


# Credit.


async def test_an_unpaced_row_waits_for_its_socket(start_synthesizer: StartSynthesizer) -> None:
    """Without pacing, `max_unsent_s` bounds what is in memory; sending it makes room for more."""
    synthesizer = await start_synthesizer(Limits(max_unsent_s=2))
    context = await synthesizer.open(UNPACED)
    context.push_text(SENTENCE * 20)
    assert await made_samples(synthesizer, 2 * SAMPLE_RATE_HZ) == 2 * SAMPLE_RATE_HZ
    context.sent(SAMPLE_RATE_HZ)
    assert await made_samples(synthesizer, 3 * SAMPLE_RATE_HZ) == 3 * SAMPLE_RATE_HZ


# Engines.


async def test_words_that_were_found_outlive_the_engine(
    start_synthesizer: StartSynthesizer,
) -> None:
    """After a crash, the found words of audio already sent are published before the end."""
    stopped = Supervisor(WorkerSpec("online"))  # in place of a better aligner that is late
    aligners = Aligners(
        {Source.ONLINE: [Supervisor(WorkerSpec("online"))], Source.FORCED: [stopped]}
    )
    throttle = {"without_words": True, "crash_after_s": 8, "rtf": 0.4}
    synthesizer = await start_synthesizer(throttle=throttle, make_aligners=lambda: aligners)
    assert stopped.worker is not None
    os.kill(stopped.worker.pid, signal.SIGSTOP)
    context = await synthesizer.open(UNPACED)
    context.push_text(f"{SENTENCE} " * 4)
    words: list[WordTimestamp] = []
    async for event in context:
        if isinstance(event, ContextWords):
            words += event.words
    assert context.cut(10**9).text_remaining
    assert words[-1].start_sample > 5 * SAMPLE_RATE_HZ, "only what was about to be heard has left"


async def test_a_cancel_before_any_audio_has_no_time_to_it(
    start_synthesizer: StartSynthesizer,
) -> None:
    """Else it would be in the histogram of first sounds."""
    synthesizer = await start_synthesizer(throttle={"is_silent": True})
    context = await synthesizer.open(UNPACED)
    context.push_text(SENTENCE)
    context.cancel()
    assert (await collect(context)).report.ttfa_s is None


def test_words_that_wait_for_a_slow_reader_come_in_several_events() -> None:
    """Thousands may wait, of a text of which nothing is said: one message would take long."""
    words = [WordTimestamp(Word("a", at, at + 1), 0, 0, 1.0) for at in range(700)]
    queue = EventQueue(lambda: None)
    queue.put_words(words)
    events: list[WordTimestamp] = []
    lengths: list[int] = []
    while isinstance(event := queue.pop(0.0), ContextWords):
        events += event.words
        lengths.append(len(event.words))
    assert events == words and lengths == [150, 150, 150, 150, 100]
