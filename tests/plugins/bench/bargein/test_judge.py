"""The judge: which words are heard in a recording, by its sound alone."""

import itertools
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.heard import Heard, heard_in
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.known_speech import KnownSpeech, espeak
from voiceagent_tts.plugins.bench.bargein.replies import EARLIEST_CUT_S, LATEST_CUT_S
from voiceagent_tts.plugins.bench.texts import choose_texts
from voiceagent_tts.text.words import split_words

TEXT = "Your order left our warehouse on Tuesday, and it will arrive on Friday morning."
VOICE = "en", "m2", 1.1
NEAR_SAMPLES = ms_to_samples(40)

_Result = TypeVar("_Result")


@pytest.fixture(scope="module")
def spoken() -> KnownSpeech:
    """The text in a voice that is not the judge's reference."""
    return espeak(TEXT, *VOICE)


def recording(spoken: KnownSpeech, samples: int, text: str | None = None) -> Recording:
    """The first samples of speech."""
    text = spoken.text if text is None else text
    return Recording(spoken.speaker, spoken.language, text, spoken.pcm[: 2 * samples])


def in_new_process(judge: Callable[..., _Result], *arguments: Any) -> _Result:
    """Speak and judge in a process that has spoken nothing before.

    The breath and flutter of espeak's voices depend on all texts that their process has spoken, and
    after some of them (one of 33 tried) the judge takes breath for the start of the next word.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(judge, *arguments).result()


def heard_around_each_word() -> list[tuple[str, Heard, Heard]]:
    """Each word after the first: heard 40 ms before its start, and 60 ms after it."""
    spoken = espeak(TEXT, *VOICE)
    judge = Judge()
    judge.learn([recording(spoken, spoken.samples)])
    return [
        (
            word.word.text,
            judge.heard(recording(spoken, word.start_sample - NEAR_SAMPLES)),
            judge.heard(recording(spoken, word.start_sample + ms_to_samples(60))),
        )
        for word in spoken.words[1:]
    ]


def test_a_word_is_heard_from_its_sound_on() -> None:
    """Cut off 40 ms before each word, the word is not heard; 60 ms after its start, it is."""
    words = in_new_process(heard_around_each_word)
    assert len(words) == 13
    for index, (word, before, after) in enumerate(words, start=1):
        assert index not in before.heard, word
        assert after.heard == frozenset(range(index + 1)), word


def test_silence_and_an_empty_recording_have_no_words(spoken: KnownSpeech) -> None:
    """Nothing is heard where nothing was said."""
    judge = Judge()
    silence = Recording("agent", "en", TEXT, bytes(2 * SAMPLE_RATE_HZ))
    assert judge.heard(silence).heard == frozenset()
    assert judge.heard(recording(spoken, 0)).heard == frozenset()
    assert judge.heard(recording(spoken, spoken.samples, text="")).heard == frozenset()


def errors_of(language: str) -> tuple[list[float], list[int]]:
    """Of the committed texts in voices and paces that the judge's reference does not have.

    Returns:
        Milliseconds between the judged and the voice's own start of each word that was heard, and
        the words judged as heard minus words heard, of six cuts of each text.
    """
    rng, judge = random.Random(language), Judge()
    speakers = itertools.cycle((("f2", 0.9), ("m2", 1.0), ("f4", 1.1), ("m7", 1.2)))
    texts = choose_texts([language], ("short", "menu", "blurb", "numbers"))
    spoken = [espeak(each.text, language, *next(speakers)) for each in texts]
    judge.learn(recording(each, each.samples) for each in spoken)
    errors_ms: list[float] = []
    differences: list[int] = []
    for each in spoken:
        latest = min(each.samples, int(LATEST_CUT_S * SAMPLE_RATE_HZ))
        for _ in range(6):
            samples = int(rng.uniform(EARLIEST_CUT_S * SAMPLE_RATE_HZ, latest))
            true = len(heard_in(each.words, samples).heard)
            if not all(word.is_exact for word in each.words[max(0, true - 1) : true + 1]):
                continue
            judged = judge.word_times(recording(each, samples))
            differences.append(len(heard_in(judged, samples).heard) - true)
            errors_ms += [
                1000 * abs(ours.start_sample - native.start_sample) / SAMPLE_RATE_HZ
                for ours, native in zip(judged[:true], each.words, strict=False)
                if native.is_exact
            ]
    return errors_ms, differences


@pytest.mark.parametrize(
    "language",
    ["it", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("en", "de", "fr", "es"))],
)
def test_the_judge_is_within_40_ms(language: str) -> None:
    """95 % of the words; no cut is off by more than a word, and most are exact."""
    errors_ms, differences = in_new_process(errors_of, language)
    assert len(errors_ms) > 100 and len(differences) > 20
    assert np.percentile(errors_ms, 95) <= 40
    assert max(map(abs, differences)) <= 1
    assert differences.count(0) >= 0.9 * len(differences)


def heard_before_silence() -> list[Heard]:
    """What is heard of speech that is cut off in its sixth word, without and with silence after."""
    judge, spoken = Judge(), espeak(TEXT, *VOICE)
    cut = spoken.words[5].start_sample + ms_to_samples(100)
    silent = Recording("agent", "en", TEXT, spoken.pcm[: 2 * cut] + bytes(2 * SAMPLE_RATE_HZ))
    return [judge.heard(recording(spoken, cut)), judge.heard(silent)]


def test_silence_after_a_cut_adds_no_word() -> None:
    """A transport that plays silence after the cut has played no more words."""
    for heard in in_new_process(heard_before_silence):
        assert heard.heard == frozenset(range(6))


def test_a_language_without_a_reference_is_refused(spoken: KnownSpeech) -> None:
    """The error names the language."""
    with pytest.raises(InvalidRequestError, match="tlh"):
        Judge().heard(Recording("agent", "tlh", TEXT, spoken.pcm))


def test_words_after_the_last_sample_are_not_heard() -> None:
    """20 ms of a word are heard, one sample is begun; the last word has no known end."""
    first, second = split_words("Your order")
    words = WordTimestamp(first, 0, 4800, 1.0), WordTimestamp(second, 4800, None, 1.0)
    assert heard_in(words, 479) == Heard(frozenset(), frozenset(), frozenset({0}))
    assert heard_in(words, 480).heard == {0}
    begun = heard_in(words, 4801)
    assert begun == Heard(frozenset({0}), frozenset({0}), frozenset({0, 1}))
    assert heard_in(words, 5280).finished == {0, 1}
