from itertools import chain, pairwise

import numpy as np
import pytest

from testbed.heard_words import HeardWords
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, Pause, Word, WordTimestamp
from voiceagent_tts.synthesizer.events import Source

SECOND = (np.sin(np.arange(SAMPLE_RATE_HZ) / 20) * 8000).astype("<i2").tobytes()
WORD = WordTimestamp(Word("one", 0, 3), 12_000, 24_000, 1.0)
NOW = 100.0


@pytest.mark.parametrize("speed", [1.0, 0.5, 3.0])
def test_a_break_is_exact(speed: float) -> None:
    """Zeros of exactly its length, after all audio before it; later words move by as much."""
    heard = HeardWords([Source.NATIVE], speed)
    after = WordTimestamp(Word("two", 10, 13), SAMPLE_RATE_HZ + 600, None, True)
    heard.add_times(Source.NATIVE, WORD)
    chunks = [heard.push_audio(AudioChunk(0, SECOND))]
    for pause in (Pause(8, 5_000), Pause(9, 1_000)):
        heard.listener.expect_break(pause)
    chunks += chain(*heard.listener.breaks_before(8))
    start = heard.listener.end_sample - 5_000
    chunks += chain(*heard.listener.breaks_before(9))
    chunks.append(heard.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND)))
    heard.add_times(Source.NATIVE, after)
    chunks.append(heard.end_audio())
    got = [chunk for chunk in chunks if chunk is not None]
    for one, following in pairwise(got):
        assert one.end_sample == following.start_sample
    samples = np.frombuffer(b"".join(chunk.pcm for chunk in got), "<i2")
    assert len(samples) == heard.listener.end_sample == got[-1].end_sample
    assert start == pytest.approx(SAMPLE_RATE_HZ / speed, rel=0.05)
    assert not samples[start : start + 6_000].any()
    assert samples[start - 50 : start].any()
    assert samples[start + 6_000 : start + 6_050].any()
    first, second = heard.pop_due(NOW)
    assert first.start_sample == round(WORD.start_sample / speed)
    assert second.start_sample == start + 6_000 + round(600 / speed)


def test_words_stay_in_order_across_a_break() -> None:
    """Stretched audio is shorter than its words say, by more than a short break takes."""
    heard = HeardWords([Source.NATIVE], 0.25)
    half = SAMPLE_RATE_HZ // 2
    heard.add_times(
        Source.NATIVE,
        WordTimestamp(Word("Hello", 0, 5), 50, half, 1.0),
        WordTimestamp(Word("你", 6, 7), half, half, 1.0),  # the engine does not say it
    )
    published = heard.pop_due(NOW)
    heard.listener.expect_break(Pause(27, 240))
    heard.push_audio(AudioChunk(0, SECOND[:SAMPLE_RATE_HZ]))
    assert [*heard.listener.breaks_before(27)]
    heard.add_times(Source.NATIVE, WordTimestamp(Word("World.", 28, 34), half, SAMPLE_RATE_HZ, 1.0))
    published += heard.pop_due(NOW)
    starts = [each.start_sample for each in published]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(heard.listener.end_sample, abs=SAMPLE_RATE_HZ // 10)


def test_words_after_a_break_wait_for_it() -> None:
    """An estimate is not published while the listener hears the silence before it."""
    heard = HeardWords()
    heard.expect("one")
    heard.push_audio(AudioChunk(0, SECOND))
    assert len(heard.pop_due(NOW)) == 1
    heard.playout.send(SAMPLE_RATE_HZ, NOW)
    heard.policy.end_segment(10, SAMPLE_RATE_HZ)
    heard.listener.expect_break(Pause(10, 2 * SAMPLE_RATE_HZ))
    assert [*heard.listener.breaks_before(10)]
    heard.playout.send(2 * SAMPLE_RATE_HZ, NOW)
    heard.expect("        two")
    assert heard.words.due_at is None, "an event decides: the audio of the word"
    heard.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND))
    assert heard.pop_due(NOW + 2.5) == ()
    due = heard.words.due_at
    assert due is not None
    assert due == pytest.approx(NOW + 3 - 0.17, abs=0.01)
    (word,) = heard.pop_due(due)
    assert word.start_sample == 3 * SAMPLE_RATE_HZ
    assert heard.listener.to_engine_samples(4 * SAMPLE_RATE_HZ) == 2 * SAMPLE_RATE_HZ


@pytest.mark.parametrize("start", [SAMPLE_RATE_HZ, SAMPLE_RATE_HZ + 600])
def test_words_before_a_break_leave_before_it(start: int) -> None:
    """Playback that reaches a break has reached all words before it, wherever they were found."""
    heard = HeardWords([Source.ONLINE])
    heard.expect("one two")
    heard.add_times(Source.ONLINE, WORD)
    heard.policy.set_tentative((WordTimestamp(Word("two", 4, 7), start, None, 0.5),))
    heard.listener.expect_break(Pause(7, 2 * SAMPLE_RATE_HZ))
    heard.push_audio(AudioChunk(0, SECOND))
    heard.policy.end_segment(7, SAMPLE_RATE_HZ)
    assert [*heard.listener.breaks_before(7)]
    assert heard.pop_due(NOW) == (WORD,)
    heard.playout.send(3 * SAMPLE_RATE_HZ, NOW)
    due = heard.words.due_at
    assert due == pytest.approx(NOW + 1 - 0.17, abs=0.01)
    assert heard.pop_due(due - 0.01) == ()
    (word,) = heard.pop_due(due)
    assert (word.word.text, word.start_sample) == ("two", SAMPLE_RATE_HZ)


def test_words_after_a_break_wait_for_its_place() -> None:
    """Text after a break may be known long before the audio ahead of it: no estimate leaves."""
    heard = HeardWords()
    heard.expect("one ")
    heard.listener.expect_break(Pause(4, SAMPLE_RATE_HZ))
    heard.expect("two")
    heard.push_audio(AudioChunk(0, SECOND))
    heard.playout.send(SAMPLE_RATE_HZ, NOW)
    assert [each.word.text for each in heard.pop_due(NOW + 1)] == ["one"]
    assert heard.words.due_at is None, "an event decides: the end of the first part"
    heard.push_audio(AudioChunk(SAMPLE_RATE_HZ, SECOND))
    assert [*heard.listener.breaks_before(4)]
    heard.playout.send(2 * SAMPLE_RATE_HZ, NOW + 1)
    heard.end_audio()
    (word,) = heard.pop_due(NOW + 3)
    assert word.start_sample == 3 * SAMPLE_RATE_HZ
