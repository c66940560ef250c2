import numpy as np
import pytest

from testbed.spoken_words import all_of, errors_ms, speech
from voiceagent_tts.audio.levels import onsets
from voiceagent_tts.core import ms_to_samples
from voiceagent_tts.phonemes.reading import LoadedVoice

TEXT = "Please take a seat, and I will be with you in five minutes."


def test_words_begin_where_they_are_heard(voice: LoadedVoice) -> None:
    """The first word begins with the audio, and the word after the comma with the next sound."""
    pcm, words, _ = all_of(speech(voice, TEXT))
    assert words[0].start_sample == 0
    first, after_pause = onsets(pcm, min_pause_ms=120)[:2]
    assert first <= ms_to_samples(10)
    assert abs(words[4].start_sample - after_pause) < ms_to_samples(80)
    assert words[4].word.text == "and"
    borders = [border for word in words for border in (word.start_sample, word.end_sample)]
    assert borders == sorted(borders) and borders[-1] <= len(pcm) // 2


HELD_OUT = (
    "my flight was late so i took a taxi to the hotel",
    "he reads the news every morning before work",
    "you will find the bathroom at the end of the hall",
    "they planted seven trees along the river last year",
    "could you send me a copy of the contract by monday",
)
"""Sentences by which no constant of the module was chosen."""


def test_words_are_where_a_forced_alignment_has_them(voice: LoadedVoice) -> None:
    """pocketsphinx, which knows the words and hears the audio, finds the same times."""
    starts, ends = errors_ms(voice, HELD_OUT)
    assert abs(np.median(starts)) < 20 and abs(np.median(ends)) < 25
    assert np.percentile(np.abs(starts), 90) < 60


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_changes_durations_in_the_network(voice: LoadedVoice, speed: float) -> None:
    """Words at half the speed take about twice as long, and stay at their places."""
    pcm, words, _ = all_of(speech(voice, TEXT))
    other, other_words, _ = all_of(speech(voice, TEXT, speed=speed))
    assert len(pcm) / len(other) == pytest.approx(speed, rel=0.2)
    for word, same in zip(words[1:], other_words[1:], strict=True):
        assert word.start_sample / same.start_sample == pytest.approx(speed, rel=0.4)


def test_the_lead_is_left_out_unless_it_is_kept(voice: LoadedVoice) -> None:
    """The network begins with a third of a second of silence."""
    trimmed, words, _ = all_of(speech(voice, TEXT))
    kept, kept_words, _ = all_of(speech(voice, TEXT, trims_lead=False))
    lead = (len(kept) - len(trimmed)) // 2
    assert ms_to_samples(200) < lead < ms_to_samples(500)
    for word, same in zip(words[1:], kept_words[1:], strict=True):
        assert same.start_sample - word.start_sample == pytest.approx(lead, abs=1)
