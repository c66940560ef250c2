"""Which words of a reply were heard when this much of it was played."""

import time

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.adapters.livekit.playout import Playout
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.text.words import split_words

TEXT = "One, two, three. Four, five."
WORD_MS = 300


def playing(audio_ms: int, *, latency_s: float = 0.0, first: int = 0, words: int = 5) -> Playout:
    """A reply whose words take 300 ms each, of which `audio_ms` have arrived."""
    playout = Playout(latency_s)
    playout.text = TEXT
    playout.play(ms_to_samples(audio_ms))
    playout.expect(word_at(index) for index in range(first, words))
    return playout


def word_at(index: int, late_ms: int = 0) -> WordTimestamp:
    """The word with this index; it begins `late_ms` after its place."""
    start = ms_to_samples(index * WORD_MS + late_ms)
    return WordTimestamp(split_words(TEXT)[index], start, None, 1.0)


@given(st.integers(0, 2000), st.sampled_from([0, 200]))
def test_a_word_counts_when_20_ms_of_it_were_heard(played_ms: int, latency_ms: int) -> None:
    """The text ends with the last of these words."""
    heard_ms = played_ms - latency_ms
    count = sum(index * WORD_MS + 20 <= heard_ms for index in range(5))
    words = split_words(TEXT)[:count]
    text = playing(1500, latency_s=latency_ms / 1000).heard_text(played_ms / 1000)
    assert text == (TEXT[: words[-1].char_end] if words else "")


def test_a_complete_reply_is_heard_whole_although_an_output_rounds() -> None:
    """The last milliseconds do not matter, and neither do marks and spaces after the last word."""
    playout = playing(1500)
    playout.text += " 🙂"
    assert playout.heard_text(1.48) == TEXT
    playout.is_complete = True
    assert playout.heard_text(1.48) == TEXT + " 🙂"
    assert playout.heard_text(1.3) == TEXT


def test_words_of_audio_that_never_came_are_not_heard() -> None:
    """After a context broke off, the next one speaks them; each word counts once."""
    playout = playing(610, words=4)
    playout.forget_unheard()
    assert playout.char_end == split_words(TEXT)[1].char_end
    resumed = playout.expect(word_at(index, late_ms=100) for index in range(1, 5))
    assert [each.word.text for each in resumed] == ["three.", "Four,", "five."]
    playout.play(ms_to_samples(1500))
    assert playout.heard_text(0.71) == "One, two,"
    assert playout.heard_text(0.73) == "One, two, three."


def test_words_that_were_noise_are_not_heard() -> None:
    """The next context speaks them, later; until then they were not heard."""
    playout = playing(1500)
    playout.forget_after(split_words(TEXT)[1].char_end)
    assert playout.heard_text(1.5) == "One, two,"
    playout.expect(word_at(index, late_ms=900) for index in range(2, 5))
    playout.play(ms_to_samples(900))
    assert playout.heard_text(1.52) == "One, two, three."


def test_playback_that_starts_late_leaves_more_to_hear() -> None:
    """The listener has all audio left when playback starts, whenever that is."""
    playout = playing(1000)
    playout.play(ms_to_samples(500))
    assert 0 < playout.left_s <= 1.5

    playout.start(time.time() - 1.0)
    assert 0.4 < playout.left_s <= 0.5
    assert playout.samples == 1.5 * SAMPLE_RATE_HZ
