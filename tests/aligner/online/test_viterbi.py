from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.viterbi import (
    MAX_TRACED_FRAMES,
    PAUSE_ENTRY_COST,
    SKIP_COST,
    AlignmentPath,
    PathEnd,
    ViterbiSearch,
)
from voiceagent_tts.core import Word

FAR = 20.0
STAY_COST = 2.0


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
        step(paths, window, rows[start : start + 8, :, window.start : window.stop])


def step(paths: ViterbiSearch, window: range, rows: np.ndarray) -> None:
    """Advance the search without any pauses."""
    no_pause = np.full(len(rows), np.inf, np.float32)
    advance_with(paths, window, rows, no_pause, np.zeros(len(window) + 1, np.bool_))


def advance_with(
    paths: ViterbiSearch,
    window: range,
    rows: np.ndarray,
    pause_costs: np.ndarray,
    starts: np.ndarray,
) -> None:
    """Advance the search by frames that all cost the same where they repeat a reference frame."""
    stay_costs = np.full(len(rows), STAY_COST, np.float32)
    paths.advance(window, rows, pause_costs, stay_costs, starts)


def trace(paths: ViterbiSearch, end: PathEnd) -> list[int]:
    """Reference frames of a path without pauses."""
    path, is_speech = paths.backtrace(end)
    assert is_speech.all()
    return path.tolist()


@given(steps=st.lists(st.sampled_from((0, 1, 1, 1, 2)), min_size=1, max_size=400))
def test_the_path_that_costs_least_is_found(steps: list[int]) -> None:
    """Audio that stays, moves on and skips is traced back frame by frame."""
    path = [0, *np.cumsum(steps).tolist()]
    paths = search_of(1)
    advance(paths, distances(path, path[-1] + 1))
    assert paths.head == path[-1]
    assert trace(paths, paths.end) == path


def plain_costs(
    rows: np.ndarray, pause_costs: np.ndarray, stay_costs: np.ndarray, starts: np.ndarray
) -> dict[PathEnd, float]:
    """Twin of the search: the cost of the cheapest path to each end, one state at a time."""
    costs: dict[PathEnd, float] = {PathEnd(0, is_pause=True): 0.0}
    each = zip(rows, pause_costs, stay_costs, strict=True)
    for number, (row, pause_cost, stay_cost) in enumerate(each):
        found: dict[PathEnd, float] = {}
        for end, cost in costs.items():
            for after, more in plain_steps(end, stay_cost, starts, is_first=number == 0):
                own = pause_cost if after.is_pause else row[after.frame : after.frame + 1]
                if np.size(own):
                    total = cost + more + float(np.squeeze(own))
                    found[after] = min(total, found.get(after, np.inf))
        costs = found
    return costs


def plain_steps(
    end: PathEnd, stay_cost: float, starts: np.ndarray, *, is_first: bool
) -> Iterator[tuple[PathEnd, float]]:
    """Ends that one more audio frame can lead to, with the costs of the transitions."""
    frame = end.frame
    if end.is_pause:
        yield end, 0.0
        yield PathEnd(frame, is_pause=False), 0.0
        if is_first:
            yield PathEnd(frame + 1, is_pause=False), float(SKIP_COST)
        return
    yield end, float(stay_cost)
    yield PathEnd(frame + 1, is_pause=False), 0.0
    yield PathEnd(frame + 2, is_pause=False), float(SKIP_COST)
    if starts[frame + 1]:
        yield PathEnd(frame + 1, is_pause=True), float(PAUSE_ENTRY_COST)


@given(seed=st.integers(0, 10_000), frames=st.integers(1, 40), length=st.integers(1, 30))
def test_the_search_agrees_with_its_plain_twin(seed: int, frames: int, length: int) -> None:
    """With random costs and pauses it finds the end and the cost of the cheapest path."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 12, (frames, length)).astype(np.float32)
    pause_costs = rng.integers(0, 9, frames).astype(np.float32)
    stay_costs = rng.integers(0, 4, frames).astype(np.float32)
    starts = rng.random(length + 1) < 0.3
    paths = search_of(1)
    paths.advance(range(length), rows[:, None], pause_costs, stay_costs, starts)
    costs = plain_costs(rows, pause_costs, stay_costs, starts)
    assert costs[paths.end] == min(costs.values())
    assert path_cost(paths, rows, pause_costs, stay_costs) == pytest.approx(
        costs[paths.end], abs=1e-3
    )
    assert paths.end_near(length - 1).frame <= length


def path_cost(
    paths: ViterbiSearch, rows: np.ndarray, pause_costs: np.ndarray, stay_costs: np.ndarray
) -> float:
    """Cost of the path that is traced back from the end of the search."""
    path, is_speech = paths.backtrace(paths.end)
    steps = np.diff(path, prepend=0)
    cost = float(SKIP_COST) * (is_speech[0] and path[0] == 1)
    for number, frame in enumerate(path):
        cost += float(rows[number, frame] if is_speech[number] else pause_costs[number])
        if number and is_speech[number] and is_speech[number - 1]:
            cost += (float(stay_costs[number]), 0.0, float(SKIP_COST))[steps[number]]
        elif number and is_speech[number - 1]:
            cost += float(PAUSE_ENTRY_COST)
    return cost


def test_a_pause_lies_between_words_only() -> None:
    """Frames that sound like a pause are in one before a word, and in a word elsewhere."""
    path = [0, 1, 2, *[2] * 20, 3, 4, 5]
    rows = distances(path, 6)
    rows[3:23] = FAR
    pause_costs = np.full(len(path), np.inf, np.float32)
    pause_costs[3:23] = 4.0
    for start, expected in ((3, 20), (6, 0)):
        paths = search_of(1)
        advance_with(paths, range(6), rows, pause_costs, np.arange(7) == start)
        _, is_speech = paths.backtrace(paths.end)
        assert (~is_speech).sum() == expected


def test_sound_that_cannot_be_stretched_is_rather_in_a_pause() -> None:
    """A word's first frame repeated 20 times is a part of the word, unless repeating costs much."""
    path = [0, 1, 2, *[3] * 21, 4, 5]
    rows = distances(path, 6)
    rows[4:24, 0, 3] = 3.0
    pause_costs = np.full(len(path), 6.0, np.float32)
    for stay_cost, expected in ((2.0, 0), (5.0, 20)):
        paths = search_of(1)
        stay_costs = np.full(len(path), stay_cost, np.float32)
        paths.advance(range(6), rows, pause_costs, stay_costs, np.arange(7) == 3)
        _, is_speech = paths.backtrace(paths.end)
        assert (~is_speech).sum() == expected


def test_noise_after_the_last_word_is_a_pause() -> None:
    """The path ends in the pause after the last frame, and still reaches that frame."""
    path = [*range(10), *[9] * 30]
    rows = distances(path, 10)
    rows[10:] = FAR
    pause_costs = np.full(len(path), 4.0, np.float32)
    paths = search_of(1)
    advance_with(paths, range(10), rows, pause_costs, np.arange(11) == 10)
    assert paths.end == paths.end_near(9) == PathEnd(10, is_pause=True)
    assert paths.head == 9
    frames, is_speech = paths.backtrace(paths.end)
    assert frames[is_speech].tolist() == list(range(10))


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
    step(paths, paths.window(16), distances(list(range(8, 16)), 16)[:, :, :16])
    assert trace(paths, paths.end) == list(range(16))


def test_the_matching_rendering_wins() -> None:
    """The best of three renderings is found, and stays when the others are dropped."""
    rows = np.roll(distances(list(range(40)), 40, renderings=3), 2, axis=1)
    paths = search_of(3)
    advance(paths, rows[:24])
    assert paths.best_rendering == 2
    paths.keep_rendering(2)
    window = paths.window(40)
    step(paths, window, rows[24:, 2:, window.start : window.stop])
    assert trace(paths, paths.end) == list(range(40))


def test_costs_before_a_restart_become_prior_costs() -> None:
    """A restart drops the paths, not the costs of the renderings."""
    paths = search_of(2)
    advance(paths, distances(list(range(16)), 32, renderings=2))
    paths.restart(16)
    step(paths, paths.window(32), np.zeros((4, 2, 16), np.float32))
    assert paths.best_rendering == 0
    assert len(trace(paths, paths.end)) == 4


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
        assert paths.end_near(last) == paths.end == PathEnd(399, is_pause=False)
    assert trace(paths, paths.end_near(100)) == list(range(400))
    begun = search_of(1)
    begun.restart(8)
    step(begun, begun.window(40), np.zeros((1, 1, 32), np.float32))
    assert begun.end_near(7) == begun.end == PathEnd(8, is_pause=False)


def test_a_backtrace_is_limited() -> None:
    """The oldest audio frames are dropped; the others keep their reference frames."""
    paths = search_of(1)
    path = [0] * MAX_TRACED_FRAMES + list(range(50))
    advance(paths, distances(path, 50))
    assert trace(paths, paths.end) == path[-MAX_TRACED_FRAMES:]


def test_a_path_ends_with_the_last_word_if_that_is_near() -> None:
    """A few missing frames are bridged; half of the words are not."""
    paths = search_of(1)
    advance(paths, distances(list(range(20)), 40))
    assert paths.end_near(21) == PathEnd(21, is_pause=False)
    assert paths.end_near(39) == PathEnd(19, is_pause=False)


def test_evidence_separates_like_from_unlike_audio() -> None:
    """Audio like the reference costs little and every other path much; other audio does neither."""
    alike, unlike = search_of(1), search_of(1)
    advance(alike, distances(list(range(100)), 100))
    advance(unlike, np.full((100, 1, 100), FAR, np.float32))
    assert len(alike.evidence) == len(unlike.evidence) == 100
    costs, margins = alike.evidence[50:].T
    assert costs.max() == 0.0
    assert margins.min() > 20
    costs, margins = unlike.evidence[50:].T
    assert costs.min() == FAR
    assert margins.max() < 60
    alike.drop_oldest(30)
    assert len(alike.evidence) == 70


HOP = 240


def path_of(reference_frames: np.ndarray, centres: list[int]) -> AlignmentPath:
    """The path of a search that was sure."""
    sure = np.tile(np.array((3.0, 60.0, 0.0, 0.0), np.float32), (len(centres), 1))
    return AlignmentPath(reference_frames, centres, sure)


def word(first: int, end: int) -> ReferenceWord:
    """A word in these reference frames."""
    return ReferenceWord(Word("w", 0, 1), first, end, 50, -50, True, float(end - first))


def test_a_word_begins_where_the_path_reaches_it() -> None:
    """It has the times of its first and last frames, moved by the reference's offsets."""
    trace = path_of(np.arange(10), [HOP * place for place in range(10)])
    time = trace.time_of(word(3, 6))
    assert (time.start_sample, time.end_sample) == (3 * HOP + 50, 5 * HOP - 50)
    assert time.is_exact
    assert trace.frames_in(word(3, 6)) == 3


def test_a_word_whose_first_frame_is_skipped_begins_with_the_next() -> None:
    """The path need not include the first frame of a word."""
    trace = path_of(np.array([0, 1, 3, 5, 6]), [HOP * place for place in range(5)])
    assert trace.time_of(word(2, 4)).start_sample == 2 * HOP + 50


def test_a_word_after_a_pause_does_not_begin_before_it() -> None:
    """An echo before a pause is not the beginning of the next word."""
    centres = [0, HOP, 2 * HOP, 50 * HOP, 51 * HOP, 52 * HOP]
    trace = path_of(np.array([0, 1, 2, 3, 4, 5]), centres)
    assert trace.time_of(word(2, 5)).start_sample == 50 * HOP + 50


def test_the_end_of_a_word_is_unknown_until_it_is_reached() -> None:
    """A word that has begun has a start and no end; a later word has not been reached."""
    trace = path_of(np.arange(5), [HOP * place for place in range(5)])
    assert trace.time_of(word(3, 8)).end_sample is None
    assert trace.has_reached(word(4, 8))
    assert not trace.has_reached(word(5, 8))


def test_a_word_without_sound_has_no_length() -> None:
    """It is placed at the next frame and is not exact."""
    time = path_of(np.arange(5), [HOP * place for place in range(5)]).time_of(word(2, 2))
    assert time.start_sample == time.end_sample
    assert not time.is_exact
