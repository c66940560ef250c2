import numpy as np
import pytest

from voiceagent_tts.aligner.online.confidence import PathEvidence
from voiceagent_tts.core import EXACT_CONFIDENCE


def evidence(
    cost: float, margin: float, frames: int = 60, bent: float = 0, left_out: float = 0
) -> np.ndarray:
    """A path with the same evidence at every frame."""
    return np.tile(np.array((cost, margin, bent, left_out), np.float32), (frames, 1))


def is_exact(path: np.ndarray, place: int = 20) -> bool:
    """Whether a word that begins at `place` is sent as exact."""
    return PathEvidence(path).start_confidence(place) >= EXACT_CONFIDENCE


def test_a_word_that_fits_and_has_no_rival_is_exact() -> None:
    """A voice in a quiet room costs about 3 a frame."""
    assert is_exact(evidence(3.0, 50))


@pytest.mark.parametrize(("cost", "margin"), [(6.5, 50), (4.5, 5), (5.0, 20)])
def test_a_bad_fit_or_a_rival_makes_doubt(cost: float, margin: float) -> None:
    """Neither a path that costs much nor one beside another of its cost can be relied on."""
    assert not is_exact(evidence(cost, margin))


def test_doubt_about_one_word_is_not_about_another() -> None:
    """A low margin counts for the words around it."""
    doubtful = evidence(3.5, 50, 200)
    doubtful[100:110, 1] = 0.0
    assert PathEvidence(doubtful).start_confidence(95) < PathEvidence(doubtful).start_confidence(20)


def test_a_bad_fit_later_on_makes_doubt() -> None:
    """A path that ran ahead fits its words badly a second later."""
    ran_ahead = evidence(3.0, 50, 200)
    assert is_exact(ran_ahead)
    ran_ahead[100:, 0] = 8.0
    assert not is_exact(ran_ahead)


@pytest.mark.parametrize("first", [60, 100, 160])
def test_a_quarter_of_a_second_that_is_no_word_makes_doubt(first: int) -> None:
    """Sound of 240 ms that fits no word counts for the words beside it, though others fit."""
    with_um = evidence(3.7, 35, 300)
    with_um[first : first + 24, 0] = 9.0
    assert not is_exact(with_um, 90)
    assert is_exact(with_um, 5 if first > 110 else 220)


def test_a_single_bad_frame_is_no_doubt() -> None:
    """A click costs much for a frame or two."""
    clicked = evidence(3.0, 45, 300)
    clicked[92:94, 0] = 7.5
    assert is_exact(clicked, 90)


def test_confidence_grows_with_what_follows() -> None:
    """The first frames of a word are weak evidence."""
    whole = evidence(4.0, 30)
    assert PathEvidence(whole[:25]).start_confidence(20) < PathEvidence(whole).start_confidence(20)


def test_the_only_frame_is_enough_for_a_number() -> None:
    """A word of one frame has a confidence between 0 and 1."""
    assert 0.0 < PathEvidence(evidence(5.0, 0.0, 1)).start_confidence(0) < 1.0


def test_a_path_that_is_bent_makes_doubt() -> None:
    """Ordinary speech repeats or skips a quarter of the frames, which is no doubt; a half is."""
    straight, bent = evidence(4.0, 30, 200), evidence(4.0, 30, 200)
    bent[::4, 2] = 1.0
    assert (
        PathEvidence(bent).start_confidence(100)
        == PathEvidence(straight).start_confidence(100)
        >= EXACT_CONFIDENCE
    )
    bent[::2, 2] = 1.0
    assert not is_exact(bent, 100)


def test_a_word_beside_sound_that_is_left_out_is_not_exact() -> None:
    """However well it fits: the sound may be the word. A few frames are no doubt."""
    certain, doubtful = (
        PathEvidence(evidence(3.0, 60, left_out=n)).start_confidence(20) for n in (5, 6)
    )
    assert doubtful == 0.5
    assert certain >= EXACT_CONFIDENCE


def test_only_loud_sound_in_pauses_is_counted_and_only_near() -> None:
    """Ten frames as loud as speech count for 60 frames on either side; quiet ones do not."""
    energies = np.full(180, -4.0, np.float32)
    is_speech = np.ones(180, np.bool_)
    is_speech[80:100] = False
    energies[80:90] = -9.0
    search = np.zeros((180, 2), np.float32)
    left_out = PathEvidence.of(search, np.arange(180), energies, is_speech).frames[:, 3]
    assert len(left_out) == 160
    assert left_out[:31].max() == 0  # frame 30 sees those before 90, all of them quiet
    assert left_out[35] == 5  # frames 90 to 94
    assert left_out[79] == left_out[80] == 10  # frames 79 and 100, on either side
    assert left_out[135] == 5  # frame 155 sees 95 to 99
    assert left_out[140:].max() == 0  # from frame 160 on


def test_repeated_and_skipped_frames_are_bent() -> None:
    """The first frame of a path is not; one after a pause is where the path goes on."""
    frames = np.array([3, 4, 4, 6, 7, 7, 7, 8])
    is_speech = np.array([1, 1, 1, 1, 1, 0, 0, 1], np.bool_)
    search = np.arange(16, dtype=np.float32).reshape(8, 2)
    found = PathEvidence.of(search, frames, np.zeros(8, np.float32), is_speech).frames
    assert found[:, 2].tolist() == [0, 0, 1, 1, 0, 0]
    assert (found[:, :2] == search[is_speech]).all()


def test_a_path_that_is_in_no_word_has_no_evidence() -> None:
    """Also one without any frame."""
    for frames in (0, 5):
        nothing = np.zeros(frames, np.bool_)
        search, quiet = np.zeros((frames, 2), np.float32), np.zeros(frames, np.float32)
        path = PathEvidence.of(search, np.zeros(frames, np.int64), quiet, nothing)
        assert path.frames.shape == (0, 4)
