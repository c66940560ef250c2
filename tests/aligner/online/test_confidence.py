import numpy as np
import pytest

from voiceagent_tts.aligner.online.confidence import TypicalCost, skipped_frames, start_confidence
from voiceagent_tts.core import EXACT_CONFIDENCE

USUAL = TypicalCost().mean


def evidence(cost: float, margin: float, frames: int = 60, skipped: float = 0) -> np.ndarray:
    """A path of equal costs and margins that left out as much before every frame."""
    return np.tile(np.array((cost, margin, skipped), np.float32), (frames, 1))


def test_a_word_that_fits_and_has_no_rival_is_exact() -> None:
    """A matched voice in a quiet room costs about 4.5 a frame."""
    assert start_confidence(evidence(4.5, 50), 20, USUAL) >= EXACT_CONFIDENCE


@pytest.mark.parametrize(("cost", "margin"), [(8.0, 50), (6.0, 5), (7.0, 20)])
def test_a_bad_fit_or_a_rival_makes_doubt(cost: float, margin: float) -> None:
    """Neither a path that costs much nor one beside another of its cost can be relied on."""
    assert start_confidence(evidence(cost, margin), 20, USUAL) < EXACT_CONFIDENCE


def test_doubt_about_one_word_is_not_about_another() -> None:
    """A low margin counts for the words around it."""
    doubtful = evidence(5.0, 50, 200)
    doubtful[100:110, 1] = 0.0
    there, elsewhere = start_confidence(doubtful, 95, USUAL), start_confidence(doubtful, 20, USUAL)
    assert there < elsewhere


def test_a_bad_fit_later_on_makes_doubt() -> None:
    """A path that ran ahead fits its words badly a second later."""
    ran_ahead = evidence(4.5, 50, 200)
    assert start_confidence(ran_ahead, 20, USUAL) >= EXACT_CONFIDENCE
    ran_ahead[100:, 0] = 8.0
    assert start_confidence(ran_ahead, 20, USUAL) < EXACT_CONFIDENCE


def test_confidence_grows_with_what_follows() -> None:
    """The first frames of a word are weak evidence."""
    whole = evidence(5.0, 30)
    assert start_confidence(whole[:25], 20, USUAL) < start_confidence(whole, 20, USUAL)


def test_the_only_frame_is_enough_for_a_number() -> None:
    """A word of one frame has a confidence between 0 and 1."""
    assert 0.0 < start_confidence(evidence(5.0, 0.0, 1), 0, USUAL) < 1.0


def test_sound_that_is_left_out_makes_doubt() -> None:
    """A word before which speech was passed over may have begun there."""
    certain, doubtful = (
        start_confidence(evidence(5.0, 45, skipped=skipped), 20, USUAL) for skipped in (0, 15)
    )
    assert doubtful < EXACT_CONFIDENCE <= certain


def test_only_loud_sound_in_pauses_is_counted_and_only_shortly_before() -> None:
    """Ten frames as loud as speech count for the next 40 frames; quiet ones do not."""
    energies = np.full(100, -4.0, np.float32)
    is_speech = np.ones(100, np.bool_)
    is_speech[20:40] = False
    energies[20:30] = -9.0
    skipped = skipped_frames(energies, is_speech)
    assert len(skipped) == 80
    assert skipped[:20].max() == 0  # before the pause
    assert skipped[20] == 10  # frame 40, after it
    assert skipped[55] == 5  # frame 75, whose last 40 frames begin with 35
    assert skipped[60:].max() == 0


def test_a_path_that_is_in_no_word_has_left_out_nothing() -> None:
    """Also one without any frame."""
    for frames in (0, 5):
        nothing = np.zeros(frames, np.bool_)
        assert len(skipped_frames(np.zeros(frames, np.float32), nothing)) == 0


def test_a_word_that_fits_as_well_as_others_of_its_voice_is_exact() -> None:
    """What is a bad fit for a clear voice is the usual one in noise."""
    unlike = evidence(6.0, 45)
    assert start_confidence(unlike, 20, USUAL) < EXACT_CONFIDENCE
    in_noise = TypicalCost()
    for _ in range(200):
        in_noise = in_noise.including(6.0)
    assert in_noise.mean == pytest.approx(5.84, abs=0.01)
    assert start_confidence(unlike, 20, in_noise.mean) >= EXACT_CONFIDENCE
