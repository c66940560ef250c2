import numpy as np
import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, PlayoutClock, Word, WordTimestamp
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.word_policy import Source

SECOND = (np.sin(np.arange(SAMPLE_RATE_HZ) / 20) * 8000).astype("<i2").tobytes()
WORD = WordTimestamp(Word("one", 0, 3), 12_000, 24_000, True)
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
    assert timeline.next_char is None
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
