from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.alignment import methods
from benchmarks.alignment.conditions import conditions
from benchmarks.alignment.cuts import cuts_of, errors_ms
from benchmarks.alignment.playback import BARGE_IN_S, FORCED_S, play
from benchmarks.alignment.speech import DEVELOPMENT, HELD_OUT
from testbed.aligned_texts import ENGLISH, OTHERS
from testbed.disturbed_speech import Noise, loudest_rms, with_breaths, with_clicks, with_noise
from testbed.known_speech import Spoken, espeak, flite, joined, with_lead, with_pauses
from testbed.noise import babble, pink
from testbed.recordings import (
    Part,
    RecordingsMissingError,
    part_of,
    recordings,
    telephone_prompts,
)
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.audio.levels import onsets
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, ms_to_samples, samples_to_ms
from voiceagent_tts.text.language import CODES
from voiceagent_tts.text.words import split_words


@pytest.fixture(scope="module")
def spoken() -> Spoken:
    """A sentence with known word times."""
    return espeak(ENGLISH[2], "en", "f2")


def starts(spoken: Spoken) -> list[int]:
    """Starts of the words in samples."""
    return [word.start_sample for word in spoken.words]


def samples(spoken: Spoken) -> npt.NDArray[np.int32]:
    """The audio as samples."""
    return np.frombuffer(spoken.pcm, "<i2").astype(np.int32)


def test_there_are_sentences_in_every_language() -> None:
    """Every language of the product is measured."""
    assert {"en", *OTHERS} == set(CODES)


def test_inserted_silence_moves_later_words(spoken: Spoken) -> None:
    """A pause has the requested length, is silent, and begins where its word began."""
    paused = with_pauses(spoken, [(2, 500), (5, 1_000)])
    moved = np.subtract(starts(paused), starts(spoken))
    assert moved.tolist() == [0, 0] + [12_000] * 3 + [36_000] * (len(moved) - 5)
    at = spoken.words[2].start_sample * BYTES_PER_SAMPLE
    assert paused.pcm[at : at + 24_000] == bytes(24_000)
    assert starts(with_lead(spoken, 250)) == [start + 6_000 for start in starts(spoken)]


@pytest.mark.parametrize("noise", [pink, babble], ids=["pink", "babble"])
def test_noise_is_as_loud_as_stated(spoken: Spoken, noise: Noise) -> None:
    """It lies 30 dB below the voice's loudest 20 ms; times and length stay."""
    noisy = with_noise(spoken, noise, 30, seed=1)
    added = np.subtract(samples(noisy), samples(spoken))
    level_db = 20 * np.log10(np.sqrt(np.square(added).mean()) / loudest_rms(spoken))
    assert level_db == pytest.approx(-30, abs=0.1)
    assert (noisy.words, noisy.samples) == (spoken.words, spoken.samples)


@pytest.mark.parametrize("add", [with_breaths, with_clicks])
def test_breaths_and_clicks_lie_in_pauses_of_their_own(
    spoken: Spoken, add: Callable[[Spoken, list[int], float, int], Spoken]
) -> None:
    """They end 60 ms before the words, which are moved; the first word may have one too."""
    disturbed = add(spoken, [0, 4], 20, 1)
    for index in (0, 4):
        start = disturbed.words[index].start_sample
        silence = samples(disturbed)[start - ms_to_samples(60) : start]
        assert not silence.any()
        sound = samples(disturbed)[start - ms_to_samples(68) : start - ms_to_samples(60)]
        assert sound.any()
    moves = np.subtract(starts(disturbed), starts(spoken))
    assert moves[4] == 2 * moves[0] > 0


def test_unwritten_words_are_spoken_and_have_no_time() -> None:
    """They move the words after them; the text and its words stay."""
    plain, hesitating = (
        flite("We open at nine.", "slt", unwritten=unwritten) for unwritten in ({}, {2: "um,"})
    )
    assert plain is not None and hesitating is not None
    assert hesitating.text == plain.text
    assert [word.word for word in hesitating.words] == [word.word for word in plain.words]
    moves = np.subtract(starts(hesitating), starts(plain))
    assert abs(moves[1]) < ms_to_samples(100) and moves[2] > ms_to_samples(150)


def test_development_and_held_out_speech_share_nothing() -> None:
    """Neither a voice nor a text."""
    for kind in ("voices", "texts", "numbers"):
        assert not set(getattr(HELD_OUT, kind)) & set(getattr(DEVELOPMENT, kind))


def test_a_recording_belongs_to_one_part_by_its_name() -> None:
    """The parts do not depend on which recordings are installed."""
    names = [f"{number:03}" for number in range(40)]
    parts = [part_of(name) for name in names]
    assert parts == [part_of(name) for name in names]
    assert 10 < parts.count("test") < 30


def test_people_are_aligned_word_by_word() -> None:
    """Every word of a recording has a start, in order and inside of the audio."""
    people = [*recordings("development"), *recordings("test")]
    assert len(people) == 10
    for spoken in people:
        assert [row.word for row in spoken.words] == split_words(spoken.text)
        assert starts(spoken) == sorted(starts(spoken))
        assert 0 <= starts(spoken)[0] and starts(spoken)[-1] < spoken.samples


@pytest.fixture(scope="module")
def prompts() -> dict[Part, list[Spoken]]:
    """The telephone prompts of both parts."""
    return {"development": telephone_prompts("development"), "test": telephone_prompts("test")}


def test_both_parts_have_prompts_of_their_own(prompts: dict[Part, list[Spoken]]) -> None:
    """No prompt is in both, none is lost, and each part has words enough for a claim."""
    texts = {part: {spoken.text for spoken in said} for part, said in prompts.items()}
    assert not texts["development"] & texts["test"]
    assert not {spoken.pcm for spoken in prompts["development"]} & {
        spoken.pcm for spoken in prompts["test"]
    }
    assert sum(map(len, prompts.values())) == 144
    for said in prompts.values():
        assert sum(len(spoken.words) for spoken in said) >= 400


def test_prompts_are_aligned_word_by_word(prompts: dict[Part, list[Spoken]]) -> None:
    """Every word is a piece of the text, and starts in order and inside of the audio."""
    for spoken in [*prompts["development"], *prompts["test"]]:
        assert len(spoken.words) >= 5
        words = [row.word for row in spoken.words]
        assert words == split_words(spoken.text)
        assert [spoken.text[word.char_start : word.char_end] for word in words] == [
            word.text for word in words
        ]
        assert starts(spoken) == sorted(starts(spoken))
        assert 0 <= starts(spoken)[0] and starts(spoken)[-1] < spoken.samples


def test_missing_prompts_are_reported_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the folder and the command; the benchmark leaves their rows out."""
    monkeypatch.setattr("testbed.recordings.PROMPTS_FOLDER", tmp_path / "missing")
    with pytest.raises(RecordingsMissingError, match=r"prompts in .*missing.*try make recordings"):
        telephone_prompts("test")
    names = conditions(HELD_OUT.few(1))
    assert not [name for name in names if name.startswith("telephone")]


def test_joined_speech_has_the_words_of_the_joined_text(spoken: Spoken) -> None:
    """The words are those of the joined text, and each text begins after the one before it."""
    both = joined([spoken, spoken])
    assert [word.word for word in both.words] == split_words(both.text)
    assert starts(both) == sorted(starts(both))
    assert both.samples == 2 * spoken.samples


def test_flite_reports_where_its_words_are() -> None:
    """Words after a pause begin where sound begins."""
    spoken = flite("Wait, please! Nobody knew. Are you there?", "slt")
    assert spoken is not None
    heard = onsets(spoken.pcm, min_pause_ms=60)
    for word in ("Wait,", "Nobody", "Are"):
        (start,) = (row.start_sample for row in spoken.words if row.word.text == word)
        assert min(abs(start - onset) for onset in heard) < 0.05 * SAMPLE_RATE_HZ


@pytest.mark.parametrize("rtf", [0.2, 0.95])
def test_barge_ins_cover_the_whole_context(spoken: Spoken, rtf: float) -> None:
    """There is one every 130 ms to the end; words are sent once, in order and in time."""
    session = OnlineAligner().open("en", "f2")
    playback = play(spoken, rtf, session)
    played = [barge_in.played_samples for barge_in in playback.barge_ins]
    assert played[-1] == spoken.samples
    assert {round(b - a) for a, b in pairwise(played[:-1])} == {round(BARGE_IN_S * SAMPLE_RATE_HZ)}
    assert [word.word for word in playback.words] == [word.word for word in spoken.words]
    assert playback.late == 0


def test_exact_times_give_exact_cuts(spoken: Spoken) -> None:
    """With the true times at the end of the sentence, every later cut is exact."""
    playback = methods.sentence_end(spoken, 0.2)
    for barge_in in playback.barge_ins:
        begun = sum(start <= barge_in.played_samples for start in starts(spoken))
        is_known = barge_in.now_s >= playback.made_s + FORCED_S
        assert barge_in.words == (begun if is_known else 0)


def test_the_simulated_forced_aligner_is_as_good_as_published() -> None:
    """Its mean error is 32 ms; its times are steps of 80 ms, in order."""
    random = Random(3)
    contexts = [espeak(text, "en", "f2", 1.5) for text in ENGLISH]
    times = [methods.forced_times(spoken, random) for spoken in contexts]
    errors = [errors_ms(ours, spoken.words) for ours, spoken in zip(times, contexts, strict=True)]
    assert np.concatenate(errors).mean() == pytest.approx(32.4, abs=4)
    rows = [row.start_sample for row in times[0]]
    assert rows == sorted(rows)
    assert all(samples_to_ms(row) % 80 == 0 for row in rows[:-1])


def test_the_online_aligner_beats_the_baselines(spoken: Spoken) -> None:
    """Even on one sentence it has more exact cuts than characters or sentence ends."""
    ours, *others = (
        cuts_of(method, [spoken], 0.5).exact_pct
        for method in (methods.online(), methods.fixed_rate, methods.sentence_end)
    )
    assert ours > max(others)
