from itertools import pairwise

import numpy as np
import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, PlayoutClock, Word, WordTimestamp
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.word_policy import Source

SECOND = (np.sin(np.arange(SAMPLE_RATE_HZ) / 20) * 8000).astype("<i2").tobytes()
WORD = WordTimestamp(Word("one", 0, 3), 12_000, 24_000, 1.0)
NOW = 100.0


def test_a_native_engine_is_left_alone() -> None:
    """An engine with native words and speed: audio passes as the same object, words unchanged."""
    timeline = Timeline(1.0, [Source.NATIVE])
    assert timeline.expect_text("one two", is_whole=True) == []
    timeline.add_times(Source.NATIVE, (WORD,))
    assert timeline.pop_due(PlayoutClock(), NOW) == (WORD,)
    chunk = AudioChunk(0, SECOND)
    assert timeline.push_audio(chunk) is chunk
    assert timeline.end_audio() is None
    assert timeline.policy.next_char is None
    assert timeline.refined() is None
    assert timeline.to_engine_samples(1000) == 1000


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_words_are_scaled_with_the_sound(speed: float) -> None:
    """At another speed the audio's length changes, without gaps, and words move with it."""
    timeline = Timeline(speed, [Source.NATIVE])
    timeline.add_times(Source.NATIVE, (WORD,))
    (word,) = timeline.pop_due(PlayoutClock(), NOW)
    assert (word.start_sample, word.end_sample) == (12_000 / speed, 24_000 / speed)
    chunks = [timeline.push_audio(AudioChunk(0, SECOND)), timeline.end_audio()]
    heard = [chunk for chunk in chunks if chunk is not None]
    assert heard[0].start_sample == 0
    for before, after in zip(heard, heard[1:], strict=False):
        assert before.end_sample == after.start_sample
    assert heard[-1].end_sample == pytest.approx(SAMPLE_RATE_HZ / speed, rel=0.03)
    assert timeline.to_engine_samples(SAMPLE_RATE_HZ) >= SAMPLE_RATE_HZ * speed


def test_an_engine_without_words_gets_guesses_ahead_of_the_sound() -> None:
    """Every word of the text is published; the first one no later than the first audio."""
    timeline, clock = Timeline(1.0, ()), PlayoutClock()
    assert timeline.expect_text("one tw", is_whole=False) == [Word("one", 0, 3)]
    assert timeline.pop_due(clock, NOW) == ()
    assert timeline.push_audio(AudioChunk(0, SECOND)) == AudioChunk(0, SECOND)
    words = timeline.pop_due(clock, NOW)
    assert [row.word.text for row in words] == ["one"]
    clock.send(SAMPLE_RATE_HZ, NOW)
    timeline.expect_text("o three", is_whole=True)
    assert timeline.pop_due(clock, NOW) == (), "they are far from being heard"
    timeline.end_audio()
    words += timeline.pop_due(clock, NOW)
    assert [row.word.text for row in words] == ["one", "two", "three"]
    assert not any(row.is_exact for row in words)


def test_it_says_when_the_next_word_must_leave() -> None:
    """The deadline is 150 ms before playback reaches the word; more audio does not change it."""
    timeline, clock = Timeline(1.0, [Source.FORCED]), PlayoutClock()
    timeline.expect_text("one two", is_whole=True)
    timeline.push_audio(AudioChunk(0, SECOND))
    timeline.add_times(Source.ONLINE, (WORD,))
    assert timeline.next_due_at(clock) is None, "nothing was sent"
    for _ in range(2):
        clock.send(SAMPLE_RATE_HZ, NOW)
        due = timeline.next_due_at(clock)
        assert due == pytest.approx(NOW + 0.5 - 0.15, abs=0.03)
        assert timeline.pop_due(clock, due - 0.01) == ()
    assert timeline.pop_due(clock, due) == (WORD,)


@pytest.mark.parametrize("speed", [1.0, 0.5, 3.0])
def test_a_break_is_exact(speed: float) -> None:
    """Zeros of exactly its length, after all audio before it; later words move by as much."""
    timeline = Timeline(speed, [Source.NATIVE])
    after = WordTimestamp(Word("two", 10, 13), SAMPLE_RATE_HZ + 600, None, True)
    timeline.add_times(Source.NATIVE, (WORD,))
    chunks = [timeline.push_audio(AudioChunk(0, SECOND))]
    for char_end in (8, 9):
        timeline.expect_break(char_end)
    chunks += timeline.push_break(8, 5_000)
    start = timeline.end_sample - 5_000
    chunks += timeline.push_break(9, 1_000)
    chunks.append(timeline.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND)))
    timeline.add_times(Source.NATIVE, (after,))
    chunks.append(timeline.end_audio())
    heard = [chunk for chunk in chunks if chunk is not None]
    for one, following in pairwise(heard):
        assert one.end_sample == following.start_sample
    samples = np.frombuffer(b"".join(chunk.pcm for chunk in heard), "<i2")
    assert len(samples) == timeline.end_sample == heard[-1].end_sample
    assert start == pytest.approx(SAMPLE_RATE_HZ / speed, rel=0.05)
    assert not samples[start : start + 6_000].any()
    assert samples[start - 50 : start].any()
    assert samples[start + 6_000 : start + 6_050].any()
    first, second = timeline.pop_due(PlayoutClock(), NOW)
    assert first.start_sample == round(WORD.start_sample / speed)
    assert second.start_sample == start + 6_000 + round(600 / speed)


def test_words_after_a_break_wait_for_it() -> None:
    """An estimate is not published while the listener hears the silence before it."""
    timeline, clock = Timeline(1.0, ()), PlayoutClock()
    timeline.expect_text("one", is_whole=True)
    timeline.push_audio(AudioChunk(0, SECOND))
    assert len(timeline.pop_due(clock, NOW)) == 1
    clock.send(SAMPLE_RATE_HZ, NOW)
    timeline.policy.end_segment(10, SAMPLE_RATE_HZ)
    timeline.expect_break(10)
    timeline.push_break(10, 2 * SAMPLE_RATE_HZ)
    clock.send(2 * SAMPLE_RATE_HZ, NOW)
    timeline.expect_text("        two", is_whole=True)
    assert timeline.next_due_at(clock) is None, "an event decides: the audio of the word"
    timeline.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND))
    assert timeline.pop_due(clock, NOW + 2.5) == ()
    due = timeline.next_due_at(clock)
    assert due is not None
    assert due == pytest.approx(NOW + 3 - 0.17, abs=0.01)
    (word,) = timeline.pop_due(clock, due)
    assert word.start_sample == 3 * SAMPLE_RATE_HZ
    assert timeline.to_engine_samples(4 * SAMPLE_RATE_HZ) == 2 * SAMPLE_RATE_HZ


@pytest.mark.parametrize("start", [SAMPLE_RATE_HZ, SAMPLE_RATE_HZ + 600])
def test_words_before_a_break_leave_before_it(start: int) -> None:
    """Playback that reaches a break has reached all words before it, wherever they were found."""
    timeline, clock = Timeline(1.0, [Source.ONLINE]), PlayoutClock()
    timeline.expect_text("one two", is_whole=True)
    timeline.add_times(Source.ONLINE, (WORD,))
    timeline.policy.set_tentative((WordTimestamp(Word("two", 4, 7), start, None, 0.5),))
    timeline.expect_break(7)
    timeline.push_audio(AudioChunk(0, SECOND))
    timeline.policy.end_segment(7, SAMPLE_RATE_HZ)
    timeline.push_break(7, 2 * SAMPLE_RATE_HZ)
    assert timeline.pop_due(clock, NOW) == (WORD,)
    clock.send(3 * SAMPLE_RATE_HZ, NOW)
    due = timeline.next_due_at(clock)
    assert due == pytest.approx(NOW + 1 - 0.17, abs=0.01)
    assert timeline.pop_due(clock, due - 0.01) == ()
    (word,) = timeline.pop_due(clock, due)
    assert (word.word.text, word.start_sample) == ("two", SAMPLE_RATE_HZ)


def test_words_after_a_break_wait_for_its_place() -> None:
    """Text after a break may be known long before the audio ahead of it: no estimate leaves."""
    timeline, clock = Timeline(1.0, ()), PlayoutClock()
    timeline.expect_text("one ", is_whole=True)
    timeline.expect_break(4)
    timeline.expect_text("two", is_whole=True)
    timeline.push_audio(AudioChunk(0, SECOND))
    clock.send(SAMPLE_RATE_HZ, NOW)
    assert [each.word.text for each in timeline.pop_due(clock, NOW + 1)] == ["one"]
    assert timeline.next_due_at(clock) is None, "an event decides: the end of the first part"
    timeline.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND))
    timeline.push_break(4, SAMPLE_RATE_HZ)
    clock.send(2 * SAMPLE_RATE_HZ, NOW + 1)
    timeline.end_audio()
    (word,) = timeline.pop_due(clock, NOW + 3)
    assert word.start_sample == 3 * SAMPLE_RATE_HZ
