import numpy as np
import pytest

from voiceagent_tts.aligner.online.confidence import start_confidence
from voiceagent_tts.core import EXACT_CONFIDENCE


def evidence(cost: float, margin: float, frames: int = 60) -> np.ndarray:
    """A path of equal costs and margins."""
    return np.tile(np.array((cost, margin), np.float32), (frames, 1))


def test_a_word_that_fits_and_has_no_rival_is_exact() -> None:
    """A matched voice in a quiet room costs about 4.5 a frame."""
    assert start_confidence(evidence(4.5, 50), 20) >= EXACT_CONFIDENCE


@pytest.mark.parametrize(("cost", "margin"), [(8.0, 50), (6.0, 5), (7.0, 20)])
def test_a_bad_fit_or_a_rival_makes_doubt(cost: float, margin: float) -> None:
    """Neither a path that costs much nor one beside another of its cost can be relied on."""
    assert start_confidence(evidence(cost, margin), 20) < EXACT_CONFIDENCE


def test_doubt_about_one_word_is_not_about_another() -> None:
    """A low margin counts for the words around it."""
    doubtful = evidence(5.0, 50, 200)
    doubtful[100:110, 1] = 0.0
    there, elsewhere = start_confidence(doubtful, 95), start_confidence(doubtful, 20)
    assert there < elsewhere


def test_confidence_grows_with_what_follows() -> None:
    """The first frames of a word are weak evidence."""
    whole = evidence(5.0, 30)
    assert start_confidence(whole[:25], 20) < start_confidence(whole, 20)


def test_the_only_frame_is_enough_for_a_number() -> None:
    """A word of one frame has a confidence between 0 and 1."""
    assert 0.0 < start_confidence(evidence(5.0, 0.0, 1), 0) < 1.0
