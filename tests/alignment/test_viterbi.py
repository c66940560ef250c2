import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.alignment.viterbi import SKIP_COST, STAY_COST, Paths

FAR = 20.0


def distances(path: list[int], length: int, renderings: int = 1) -> np.ndarray:
    """Of a sound that goes through a reference as `path` says: 0 there, `FAR` elsewhere."""
    rows = np.full((len(path), renderings, length), FAR, np.float32)
    rows[np.arange(len(path)), 0, path] = 0.0
    return rows


def follow(paths: Paths, rows: np.ndarray) -> None:
    """Advance by blocks of eight frames, as a session does."""
    for start in range(0, len(rows), 8):
        window = paths.window(rows.shape[2])
        paths.advance(window, rows[start : start + 8, :, window.start : window.stop])


@given(steps=st.lists(st.sampled_from((0, 1, 1, 1, 2)), min_size=1, max_size=400))
def test_the_path_that_costs_least_is_found(steps: list[int]) -> None:
    """A sound that stays, goes on and skips is traced frame by frame, however long it is."""
    path = [0, *np.cumsum(steps).tolist()]
    paths = Paths(1)
    follow(paths, distances(path, path[-1] + 1))
    assert paths.head == path[-1]
    assert paths.trace(paths.head).tolist() == path


def test_a_step_costs_the_same_however_long_the_reference_is() -> None:
    """Of an hour of reference only a window around the head is looked at."""
    paths = Paths(1)
    follow(paths, distances(list(range(1_000)), 1_000))
    window = paths.window(360_000)
    assert paths.head in window
    assert len(window) <= 401


def test_the_reference_may_grow() -> None:
    """Frames that are added later are reached from the ones before."""
    paths = Paths(1)
    follow(paths, distances(list(range(8)), 8))
    paths.advance(paths.window(16), distances(list(range(8, 16)), 16)[:, :, :16])
    assert paths.trace(paths.head).tolist() == list(range(16))


def test_the_rendering_that_is_alike_wins() -> None:
    """Of three renderings the best is known, and stays when the others are given up."""
    rows = np.roll(distances(list(range(40)), 40, renderings=3), 2, axis=1)
    paths = Paths(3)
    follow(paths, rows[:24])
    assert paths.best_rendering == 2
    paths.choose(2)
    window = paths.window(40)
    paths.advance(window, rows[24:, 2:, window.start : window.stop])
    assert paths.trace(paths.head).tolist() == list(range(40))


def test_what_renderings_cost_before_a_restart_still_counts() -> None:
    """A restart forgets where the sound was, not which rendering it was like."""
    paths = Paths(2)
    follow(paths, distances(list(range(16)), 32, renderings=2))
    paths.restart(16)
    paths.advance(paths.window(32), np.zeros((4, 2, 16), np.float32))
    assert paths.best_rendering == 0
    assert len(paths.trace(paths.head)) == 4


def test_a_path_ends_where_all_words_do_unless_that_is_far() -> None:
    """Some frames that are missing are made up for; half of the words are not."""
    paths = Paths(1)
    follow(paths, distances(list(range(20)), 40))
    assert paths.end(21) == 21
    assert paths.end(39) == 19


def test_strain_tells_whether_the_sound_is_like_its_reference() -> None:
    """It is what the last second cost, a frame."""
    alike, unlike = Paths(1), Paths(1)
    follow(alike, distances(list(range(300)), 300))
    follow(unlike, np.full((300, 1, 300), FAR, np.float32))
    assert alike.strain < 1 < min(STAY_COST, SKIP_COST) + 1 < unlike.strain
