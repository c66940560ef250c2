import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.viterbi import (
    MAX_TRACED_FRAMES,
    SKIP_COST,
    STAY_COST,
    AlignmentPath,
    ViterbiSearch,
)
from voiceagent_tts.core import Word

FAR = 20.0


def distances(path: list[int], length: int, renderings: int = 1) -> np.ndarray:
    """Emission costs of audio that follows `path`: 0 on the path, `FAR` elsewhere."""
    rows = np.full((len(path), renderings, length), FAR, np.float32)
    rows[np.arange(len(path)), 0, path] = 0.0
    return rows


def search_of(renderings: int) -> ViterbiSearch:
    """A search over renderings with equal prior costs."""
    return ViterbiSearch(np.zeros(renderings, np.float32))


def advance(paths: ViterbiSearch, rows: np.ndarray) -> None:
    """Advance the search in blocks of eight frames, as a session does."""
    for start in range(0, len(rows), 8):
        window = paths.window(rows.shape[2])
        paths.advance(window, rows[start : start + 8, :, window.start : window.stop])


@given(steps=st.lists(st.sampled_from((0, 1, 1, 1, 2)), min_size=1, max_size=400))
def test_the_path_that_costs_least_is_found(steps: list[int]) -> None:
    """Audio that stays, moves on and skips is traced back frame by frame."""
    path = [0, *np.cumsum(steps).tolist()]
    paths = search_of(1)
    advance(paths, distances(path, path[-1] + 1))
    assert paths.head == path[-1]
    assert paths.backtrace(paths.head).tolist() == path


def test_a_step_costs_the_same_however_long_the_reference_is() -> None:
    """Of an hour of reference only a window around the head is searched."""
    paths = search_of(1)
    advance(paths, distances(list(range(1_000)), 1_000))
    window = paths.window(360_000)
    assert paths.head in window
    assert len(window) <= 401


def test_the_reference_may_grow() -> None:
    """Reference frames that are added later are reached from earlier ones."""
    paths = search_of(1)
    advance(paths, distances(list(range(8)), 8))
    paths.advance(paths.window(16), distances(list(range(8, 16)), 16)[:, :, :16])
    assert paths.backtrace(paths.head).tolist() == list(range(16))


def test_the_matching_rendering_wins() -> None:
    """The best of three renderings is found, and stays when the others are dropped."""
    rows = np.roll(distances(list(range(40)), 40, renderings=3), 2, axis=1)
    paths = search_of(3)
    advance(paths, rows[:24])
    assert paths.best_rendering == 2
    paths.keep_rendering(2)
    window = paths.window(40)
    paths.advance(window, rows[24:, 2:, window.start : window.stop])
    assert paths.backtrace(paths.head).tolist() == list(range(40))


def test_costs_before_a_restart_become_prior_costs() -> None:
    """A restart drops the paths, not the costs of the renderings."""
    paths = search_of(2)
    advance(paths, distances(list(range(16)), 32, renderings=2))
    paths.restart(16)
    paths.advance(paths.window(32), np.zeros((4, 2, 16), np.float32))
    assert paths.best_rendering == 0
    assert len(paths.backtrace(paths.head)) == 4


def test_prior_costs_of_another_context_count() -> None:
    """A search can begin with the prior costs of another."""
    first = search_of(2)
    advance(first, distances(list(range(16)), 32, renderings=2))
    second = ViterbiSearch(first.prior_costs)
    assert second.prior_costs.tolist() == [0.0, first.prior_costs[1]]
    advance(second, np.zeros((8, 2, 32), np.float32))
    assert second.best_rendering == 0
    assert second.prior_costs.tolist() == first.prior_costs.tolist()


def test_a_frame_that_all_paths_have_passed_is_before_the_head() -> None:
    """If every path has passed the expected frame, the path ends at the head."""
    paths = search_of(1)
    advance(paths, distances(list(range(400)), 400))
    for last in (0, 100, 200):
        assert paths.end_frame(last) == paths.head == 399
    assert paths.backtrace(paths.end_frame(100)).tolist() == list(range(400))
    begun = search_of(1)
    begun.restart(8)
    begun.advance(begun.window(40), np.zeros((1, 1, 32), np.float32))
    assert begun.end_frame(7) == begun.head == 8


def test_a_backtrace_is_limited() -> None:
    """The oldest audio frames are dropped; the others keep their reference frames."""
    paths = search_of(1)
    path = [0] * MAX_TRACED_FRAMES + list(range(50))
    advance(paths, distances(path, 50))
    assert paths.backtrace(paths.head).tolist() == path[-MAX_TRACED_FRAMES:]


def test_a_path_ends_with_the_last_word_if_that_is_near() -> None:
    """A few missing frames are bridged; half of the words are not."""
    paths = search_of(1)
    advance(paths, distances(list(range(20)), 40))
    assert paths.end_frame(21) == 21
    assert paths.end_frame(39) == 19


def test_mean_cost_separates_like_from_unlike_audio() -> None:
    """It is the cost per frame over about the last second."""
    alike, unlike = search_of(1), search_of(1)
    advance(alike, distances(list(range(300)), 300))
    advance(unlike, np.full((300, 1, 300), FAR, np.float32))
    assert alike.mean_cost < 1 < min(STAY_COST, SKIP_COST) + 1 < unlike.mean_cost


HOP = 240


def word(first: int, end: int) -> ReferenceWord:
    """A word in these reference frames."""
    return ReferenceWord(Word("w", 0, 1), first, end, 50, -50, True, float(end - first))


def test_a_word_begins_where_the_path_reaches_it() -> None:
    """It has the times of its first and last frames, moved by the reference's offsets."""
    trace = AlignmentPath(np.arange(10), [HOP * place for place in range(10)])
    time = trace.time_of(word(3, 6))
    assert (time.start_sample, time.end_sample) == (3 * HOP + 50, 5 * HOP - 50)
    assert time.is_exact
    assert trace.frames_in(word(3, 6)) == 3


def test_a_word_whose_first_frame_is_skipped_begins_with_the_next() -> None:
    """The path need not include the first frame of a word."""
    trace = AlignmentPath(np.array([0, 1, 3, 5, 6]), [HOP * place for place in range(5)])
    assert trace.time_of(word(2, 4)).start_sample == 2 * HOP + 50


def test_a_word_after_a_pause_does_not_begin_before_it() -> None:
    """An echo before a pause is not the beginning of the next word."""
    centres = [0, HOP, 2 * HOP, 50 * HOP, 51 * HOP, 52 * HOP]
    trace = AlignmentPath(np.array([0, 1, 2, 3, 4, 5]), centres)
    assert trace.time_of(word(2, 5)).start_sample == 50 * HOP + 50


def test_the_end_of_a_word_is_unknown_until_it_is_reached() -> None:
    """A word that has begun has a start and no end; a later word has not been reached."""
    trace = AlignmentPath(np.arange(5), [HOP * place for place in range(5)])
    assert trace.time_of(word(3, 8)).end_sample is None
    assert trace.has_reached(word(4, 8))
    assert not trace.has_reached(word(5, 8))


def test_a_word_without_sound_has_no_length() -> None:
    """It is placed at the next frame and is not exact."""
    time = AlignmentPath(np.arange(5), [HOP * place for place in range(5)]).time_of(word(2, 2))
    assert time.start_sample == time.end_sample
    assert not time.is_exact
