"""Defects that are planted in the speech of two synthesizers are found, and clean speech passes."""

import numpy as np
import pytest

from testbed.quality_clips import changed, spoken, with_noise_burst, with_pause, with_repeat
from voiceagent_tts.plugins.bench.quality.artifacts import expected_s, find_artifacts
from voiceagent_tts.plugins.bench.quality.clips import Clip, Item
from voiceagent_tts.plugins.bench.quality.test_sets import short_inputs

INPUTS = [item.text for item in short_inputs(["en"], 20)]
SENTENCE = "Please bring the green umbrella back on your way home."


def kinds(clip: Clip) -> set[str]:
    """The kinds of a clip's findings."""
    return {finding.kind for finding in find_artifacts(clip)}


@pytest.mark.parametrize("voice", ["default", "slt", "rms"])
def test_clean_short_inputs_raise_no_alarm(voice: str) -> None:
    """Twenty inputs by a voice have no defect: the rate of false alarms is 0 in 60."""
    assert {text: kinds(spoken(text, voice)) for text in INPUTS} == {t: set() for t in INPUTS}


@pytest.mark.thorough
@pytest.mark.parametrize("language", ["de", "fr", "es", "it", "pt", "ru", "zh", "ja", "ko"])
def test_clean_short_inputs_of_other_languages_raise_no_alarm(language: str) -> None:
    """Neither do those of the other nine languages."""
    texts = [item.text for item in short_inputs([language], 10)]
    assert not any(kinds(spoken(text, "default", language)) for text in texts)


@pytest.mark.parametrize("voice", ["default", "slt", "rms"])
def test_a_burst_of_noise_is_found_where_it_is(voice: str) -> None:
    """200 ms of white noise, as loud as the speech."""
    (found,) = find_artifacts(with_noise_burst(spoken(SENTENCE, voice), 1.0))
    assert found.kind == "noise"
    assert found.start_s == pytest.approx(1.0, abs=0.05)
    assert found.length_s == pytest.approx(0.2, abs=0.06)


def test_a_long_pause_and_no_sound_are_silence() -> None:
    """A pause of 1.5 s is a defect; one of 0.6 s, as between sentences, is not."""
    clip = spoken(SENTENCE)
    (found,) = find_artifacts(with_pause(clip, 1.0, 1.5))
    assert (found.kind, round(found.length_s, 1)) == ("silence", 1.5)
    assert kinds(with_pause(clip, 1.0, 0.6)) == set()
    assert kinds(changed(clip, np.zeros(24_000))) == {"silence"}
    assert kinds(changed(clip, np.zeros(0))) == {"silence"}


@pytest.mark.parametrize("voice", ["default", "slt", "rms"])
def test_speech_that_is_heard_twice_is_repetition(voice: str) -> None:
    """Spliced, or spoken again; a text that says it twice is not a defect.

    A fourth voice, awb, varies its prosody so much that words spoken again are missed.
    """
    clip = spoken(SENTENCE, voice)
    assert "repetition" in kinds(with_repeat(clip, 0.5, 0.7))
    again = "Please bring the green umbrella the green umbrella back on your way home."
    said_again = changed(clip, spoken(again, voice).samples)
    assert "repetition" in kinds(said_again)
    assert kinds(Clip(Item("x", again), said_again.samples)) == set()


def test_speech_far_too_long_or_short_for_its_text_is_found() -> None:
    """A sentence for one word is runaway speech; a word for a sentence was cut."""
    word, sentence = spoken("Yes."), spoken(SENTENCE)
    assert kinds(changed(word, sentence.samples)) == {"too long"}
    assert kinds(changed(sentence, word.samples)) == {"too short"}


@pytest.mark.parametrize("text", ["", "...", "🙂", "a" * 100_000])
def test_any_text_has_an_expected_length(text: str) -> None:
    """Also one without a letter; and a clip of it is examined."""
    assert expected_s(text) >= 0
    find_artifacts(Clip(Item("x", text), spoken("Yes.").samples))
