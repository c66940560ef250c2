import numpy as np
import pytest

from voiceagent_tts.alignment.timeline import Timeline
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, Word, WordTimestamp

SECOND = (np.sin(np.arange(SAMPLE_RATE_HZ) / 20) * 8000).astype("<i2").tobytes()
WORD = WordTimestamp(Word("one", 0, 3), 12_000, 24_000, True)


def test_a_native_engine_is_left_alone() -> None:
    """Where the engine does all, its audio passes as the same object and its words unchanged."""
    timeline = Timeline(1.0, has_native_words=True)
    timeline.expect("one two", is_last=True)
    chunk = AudioChunk(0, SECOND)
    assert timeline.words((WORD,)) == (WORD,)
    assert timeline.audio(chunk).audio is chunk
    assert timeline.finish().words == ()
    assert timeline.to_engine(1000) == 1000


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_words_are_scaled_with_the_sound(speed: float) -> None:
    """At another speed audio gets shorter or longer, gap-free, and words move with it."""
    timeline = Timeline(speed, has_native_words=True)
    (word,) = timeline.words((WORD,))
    assert (word.start_sample, word.end_sample) == (12_000 / speed, 24_000 / speed)
    chunks = [timeline.audio(AudioChunk(0, SECOND)).audio, timeline.finish().audio]
    heard = [chunk for chunk in chunks if chunk is not None]
    assert heard[0].start_sample == 0
    for before, after in zip(heard, heard[1:], strict=False):
        assert before.end_sample == after.start_sample
    assert heard[-1].end_sample == pytest.approx(SAMPLE_RATE_HZ / speed, rel=0.03)
    assert timeline.to_engine(SAMPLE_RATE_HZ) >= SAMPLE_RATE_HZ * speed


def test_an_engine_without_words_gets_guesses_ahead_of_the_sound() -> None:
    """Every word of the text comes, the first one no later than the first audio."""
    timeline = Timeline(1.0, has_native_words=False)
    timeline.expect("one tw")
    first = timeline.audio(AudioChunk(0, SECOND))
    assert [row.word.text for row in first.words] == ["one"]
    assert first.audio == AudioChunk(0, SECOND)
    assert timeline.words((WORD,)) == ()
    timeline.expect("o three", is_last=True)
    second = timeline.audio(AudioChunk(SAMPLE_RATE_HZ, SECOND))
    words = first.words + second.words + timeline.finish().words
    assert [row.word.text for row in words] == ["one", "two", "three"]
    assert not any(row.is_exact for row in words)
