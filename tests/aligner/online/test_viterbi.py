from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.aligner.online.confidence import PathEvidence
from voiceagent_tts.aligner.online.espeak_reference import Fork, ReferenceWord
from voiceagent_tts.aligner.online.viterbi import (
    GAP_ENTRY_COSTS,
    INITIAL_GAP_COSTS,
    MAX_TRACED_FRAMES,
    OMISSION_COST,
    SKIP_COST,
    STAY_COST,
    AlignmentPath,
    PathEnd,
    State,
    ViterbiSearch,
)
from voiceagent_tts.core import Word

FAR = 20.0


def distances(path: list[int], length: int) -> np.ndarray:
    """Emission costs of audio that follows `path`: 0 on the path, `FAR` elsewhere."""
    rows = np.full((len(path), length), FAR, np.float32)
    rows[np.arange(len(path)), path] = 0.0
    return rows


def advance(paths: ViterbiSearch, rows: np.ndarray) -> None:
    """Advance the search in blocks of eight frames, as a session does."""
    for start in range(0, len(rows), 8):
        window = paths.window(rows.shape[1])
        step(paths, window, rows[start : start + 8, window.start : window.stop])


def step(paths: ViterbiSearch, window: range, rows: np.ndarray) -> None:
    """Advance the search without any gaps."""
    no_gap = np.full((len(rows), 2), np.inf, np.float32)
    paths.advance(window, rows, no_gap, np.zeros(len(window) + 1, np.bool_))


def trace(paths: ViterbiSearch, end: PathEnd) -> list[int]:
    """Reference frames of a path without gaps."""
    path, is_speech = paths.backtrace(end)
    assert is_speech.all()
    return path.tolist()


@given(steps=st.lists(st.sampled_from((0, 1, 1, 1, 2)), min_size=1, max_size=400))
def test_the_path_that_costs_least_is_found(steps: list[int]) -> None:
    """Audio that stays, moves on and skips is traced back frame by frame."""
    path = [0, *np.cumsum(steps).tolist()]
    paths = ViterbiSearch()
    advance(paths, distances(path, path[-1] + 1))
    assert paths.head == path[-1]
    assert trace(paths, paths.end) == path


def plain_costs(
    rows: np.ndarray, gap_costs: np.ndarray, starts: np.ndarray, forks: tuple[Fork, ...] = ()
) -> dict[PathEnd, float]:
    """Twin of the search: the cost of the cheapest path to each end, one state at a time."""
    costs: dict[PathEnd, float] = {
        PathEnd(0, State.PAUSE): float(INITIAL_GAP_COSTS[0]),
        PathEnd(0, State.UNWRITTEN): float(INITIAL_GAP_COSTS[1]),
    }
    for number, (row, gaps) in enumerate(zip(rows, gap_costs, strict=True)):
        found: dict[PathEnd, float] = {}
        for end, cost in costs.items():
            nexts = [*plain_steps(end, rows.shape[1], starts, is_first=number == 0)]
            if number:
                nexts += plain_jumps(end, rows.shape[1], forks)
            for after, more in nexts:
                own = gaps[after.state - 1] if after.is_gap else row[after.frame : after.frame + 1]
                if np.size(own):
                    total = cost + more + float(np.squeeze(own))
                    found[after] = min(total, found.get(after, np.inf))
        costs = found
    return costs


def plain_steps(
    end: PathEnd, length: int, starts: np.ndarray, *, is_first: bool
) -> Iterator[tuple[PathEnd, float]]:
    """Ends that one more audio frame can lead to, with the costs of the transitions."""
    frame = end.frame
    if end.is_gap:
        yield end, 0.0
        if is_first and end.state is State.UNWRITTEN:  # what begins a context begins as a pause
            return
        yield PathEnd(frame, State.WORD), 0.0
        if is_first:
            yield PathEnd(frame + 1, State.WORD), float(SKIP_COST)
        return
    if frame == length:  # behind the reference
        return
    yield end, float(STAY_COST)
    yield PathEnd(frame + 1, State.WORD), 0.0
    yield PathEnd(frame + 2, State.WORD), float(SKIP_COST)
    if starts[frame + 1]:
        for state, entry_cost in zip((State.PAUSE, State.UNWRITTEN), GAP_ENTRY_COSTS, strict=True):
            yield PathEnd(frame + 1, state), float(entry_cost)


def plain_jumps(
    end: PathEnd, length: int, forks: tuple[Fork, ...]
) -> Iterator[tuple[PathEnd, float]]:
    """Ends that leave out readings of a word, with the costs of the transitions."""
    place = end.frame + (not end.is_gap)
    for fork in forks:
        first, after = fork.borders[0], fork.borders[-1]
        targets = {first: fork.borders[1:-1]} | dict.fromkeys(fork.borders[1:-1], (after,))
        for target in targets.get(place, ()):
            yield PathEnd(target, State.WORD), 0.0
        if place == first:
            yield PathEnd(after, State.WORD), float(OMISSION_COST)


FORKS = (Fork((2, 5)), Fork((7, 10, 12)), Fork((14, 15, 17, 20)))


@given(seed=st.integers(0, 10_000), frames=st.integers(1, 40), length=st.integers(1, 30))
def test_readings_agree_with_the_plain_twin(seed: int, frames: int, length: int) -> None:
    """With words that have several readings, the cost is that of the best reading or of none."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 20, (frames, length)).astype(np.float32)
    gap_costs = rng.integers(0, (9, 5), (frames, 2)).astype(np.float32)
    starts = rng.random(length + 1) < 0.3
    paths = ViterbiSearch()
    for first in range(0, frames, 8):
        part = slice(first, first + 8)
        paths.advance(range(length), rows[part], gap_costs[part], starts, FORKS)
    costs = plain_costs(rows, gap_costs, starts, FORKS)
    assert costs[paths.end] == min(costs.values())
    path, is_speech = paths.backtrace(paths.end)
    assert (np.diff(path) >= 0).all()
    assert len(path) == frames == len(is_speech)


@pytest.mark.parametrize("said", [range(10, 40), range(40, 60), range(60, 90), range(0)])
def test_one_reading_is_followed(said: range) -> None:
    """A path goes through the reading that was said, and through none where all fit badly."""
    fork, length = Fork((10, 40, 60, 90)), 120
    path = [*range(10), *said, *range(90, length)]
    paths = ViterbiSearch()
    rows, starts = distances(path, length), np.zeros(length + 1, np.bool_)
    paths.advance(range(length), rows, np.full((len(path), 2), np.inf, np.float32), starts, (fork,))
    assert trace(paths, paths.end) == path


def test_the_window_reaches_behind_all_readings() -> None:
    """The frames of a word with several readings do not count."""
    paths, length = ViterbiSearch(), 2_000
    fork = Fork((100, 900, 1_300))
    assert paths.window(length).stop == 250
    assert paths.window(length, (fork,)).stop == 250 + 1_200
    assert paths.window(1_000, (fork,)).stop == 1_000


@given(seed=st.integers(0, 10_000), frames=st.integers(1, 40), length=st.integers(1, 30))
def test_the_search_agrees_with_its_plain_twin(seed: int, frames: int, length: int) -> None:
    """With random costs, pauses and unwritten speech it finds the cheapest path and its cost."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 20, (frames, length)).astype(np.float32)
    gap_costs = rng.integers(0, (9, 5), (frames, 2)).astype(np.float32)
    starts = rng.random(length + 1) < 0.3
    paths = ViterbiSearch()
    paths.advance(range(length), rows, gap_costs, starts)
    costs = plain_costs(rows, gap_costs, starts)
    assert costs[paths.end] == min(costs.values())
    # Several paths may cost the same, so what is traced is compared by its cost.
    assert plain_path_cost(paths, rows, gap_costs) == pytest.approx(min(costs.values()), abs=1e-3)
    assert paths.end_near(length - 1).frame <= length


def plain_path_cost(paths: ViterbiSearch, rows: np.ndarray, gap_costs: np.ndarray) -> float:
    """Cost of the path that is traced back from the end of the search, its gaps at their best."""
    path, is_speech = paths.backtrace(paths.end)
    steps = np.diff(path, prepend=0)
    cost = float(SKIP_COST) * (is_speech[0] and path[0] == 1)
    for number, frame in enumerate(path):
        if is_speech[number]:
            cost += float(rows[number, frame])
            if number and is_speech[number - 1]:
                cost += (float(STAY_COST), 0.0, float(SKIP_COST))[steps[number]]
    gap_starts = np.flatnonzero(np.diff(~is_speech, prepend=False, append=False))
    for start, end in gap_starts.reshape(-1, 2):
        entry_costs = GAP_ENTRY_COSTS if start else INITIAL_GAP_COSTS
        cost += float((entry_costs + gap_costs[start:end].sum(axis=0)).min())
    return cost


@given(seed=st.integers(0, 10_000), length=st.integers(1, 60), drops=st.lists(st.integers(0, 12)))
def test_a_backtrace_agrees_with_that_of_a_search_without_earlier_ones(
    seed: int, length: int, drops: list[int]
) -> None:
    """What a backtrace remembers of the last one is what it would find."""
    rng = np.random.default_rng(seed)
    often, once = ViterbiSearch(), ViterbiSearch()
    starts = rng.random(length + 1) < 0.3
    for drop in (*drops, 0):
        rows = rng.integers(0, 20, (8, length)).astype(np.float32)
        gap_costs = rng.integers(0, (9, 5), (8, 2)).astype(np.float32)
        for paths in (often, once):
            paths.advance(range(length), rows, gap_costs, starts)
            paths.drop_oldest(min(drop, len(paths.evidence) - 1))
        remembered = often.backtrace(often.end)
    assert often.end == once.end
    for found, expected in zip(remembered, once.backtrace(once.end), strict=True):
        assert found.tolist() == expected.tolist()
    assert len(remembered[0]) == len(often.evidence)


def test_dropped_frames_are_not_remembered() -> None:
    """A path that stays where the last backtrace ended is as long as the frames that are kept."""
    path = [*range(16), *[15] * 8]
    rows = distances(path, 16)
    paths = ViterbiSearch()
    advance(paths, rows[:16])
    trace(paths, paths.end)
    paths.drop_oldest(8)
    step(paths, paths.window(16), rows[16:])
    assert trace(paths, paths.end) == path[8:]


def gaps(frames: int, pauses: slice, cost: float) -> np.ndarray:
    """Costs of gaps where only the frames `pauses` can be a pause, and none unwritten speech."""
    costs = np.full((frames, 2), np.inf, np.float32)
    costs[pauses, 0] = cost
    return costs


def test_a_pause_lies_between_words_only() -> None:
    """Frames that sound like a pause are in one before a word, and in a word elsewhere."""
    path = [0, 1, 2, *[2] * 20, 3, 4, 5]
    rows = distances(path, 6)
    rows[3:23] = FAR
    for start, expected in ((3, 20), (6, 0)):
        paths = ViterbiSearch()
        gap_costs = gaps(len(path), slice(3, 23), 4.0)
        paths.advance(range(6), rows, gap_costs, np.arange(7) == start)
        _, is_speech = paths.backtrace(paths.end)
        assert (~is_speech).sum() == expected


def test_speech_that_the_text_lacks_is_left_out_if_it_lasts() -> None:
    """Two words are passed over; a few frames that fit badly stay in the word."""
    for unlike, expected in ((40, 40), (2, 0)):
        path = [*range(20), *[19] * unlike, *range(20, 40)]
        rows = distances(path, 40)
        rows[20 : 20 + unlike] = FAR
        gap_costs = np.full((len(path), 2), (FAR, 4.0), np.float32)
        paths = ViterbiSearch()
        paths.advance(range(40), rows, gap_costs, np.arange(41) == 20)
        _, is_speech = paths.backtrace(paths.end)
        assert (~is_speech).sum() == expected


def test_while_the_audio_is_no_word_the_next_word_is_not_reached() -> None:
    """The path of a false start ends in unwritten speech before the first word."""
    rows = np.full((30, 10), FAR, np.float32)
    gap_costs = np.full((30, 2), (FAR, 4.0), np.float32)
    paths = ViterbiSearch()
    paths.advance(range(10), rows, gap_costs, np.arange(11) == 0)
    assert paths.end == PathEnd(0, State.UNWRITTEN)
    assert not paths.backtrace(paths.end)[1].any()


def test_noise_after_the_last_word_is_a_pause() -> None:
    """The path ends in the pause after the last frame, and still reaches that frame."""
    path = [*range(10), *[9] * 30]
    rows = distances(path, 10)
    rows[10:] = FAR
    paths = ViterbiSearch()
    paths.advance(range(10), rows, gaps(len(path), slice(None), 4.0), np.arange(11) == 10)
    assert paths.end == paths.end_near(9) == PathEnd(10, State.PAUSE)
    assert paths.head == 9
    frames, is_speech = paths.backtrace(paths.end)
    assert frames[is_speech].tolist() == list(range(10))


def test_a_step_costs_the_same_however_long_the_reference_is() -> None:
    """Of an hour of reference only a window around the head is searched."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(1_000)), 1_000))
    window = paths.window(360_000)
    assert paths.head in window
    assert len(window) <= 401


def test_the_reference_may_grow() -> None:
    """Reference frames that are added later are reached from earlier ones."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(8)), 8))
    step(paths, paths.window(16), distances(list(range(8, 16)), 16))
    assert trace(paths, paths.end) == list(range(16))


def test_a_restart_drops_the_paths() -> None:
    """The search goes on at another frame, and traces nothing of what was before."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(16)), 32))
    paths.restart(20)
    step(paths, paths.window(32), np.zeros((4, 12), np.float32))
    assert paths.window(32).start == 20
    assert len(trace(paths, paths.end)) == 4


def test_a_frame_that_all_paths_have_passed_is_before_the_head() -> None:
    """If every path has passed the expected frame, the path ends at the head."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(400)), 400))
    for last in (0, 100, 200):
        assert paths.end_near(last) == paths.end == PathEnd(399, State.WORD)
    assert trace(paths, paths.end_near(100)) == list(range(400))
    begun = ViterbiSearch()
    begun.restart(8)
    step(begun, begun.window(40), np.zeros((1, 32), np.float32))
    assert begun.end_near(7) == begun.end == PathEnd(8, State.WORD)


def test_a_backtrace_is_limited() -> None:
    """The oldest audio frames are dropped; the others keep their reference frames."""
    paths = ViterbiSearch()
    path = [0] * MAX_TRACED_FRAMES + list(range(50))
    advance(paths, distances(path, 50))
    for _ in range(2):  # the second time as remembered
        assert trace(paths, paths.end) == path[-MAX_TRACED_FRAMES:]
    step(paths, paths.window(50), np.zeros((8, 50), np.float32))
    assert trace(paths, PathEnd(49, State.WORD))[:-8] == path[-MAX_TRACED_FRAMES + 8 :]


def test_a_path_ends_with_the_last_word_if_that_is_near() -> None:
    """A few missing frames are bridged; half of the words are not."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(20)), 40))
    assert paths.end_near(21) == PathEnd(21, State.WORD)
    assert paths.end_near(39) == PathEnd(19, State.WORD)


def test_evidence_separates_like_from_unlike_audio() -> None:
    """Audio like the reference costs little and every other path much; other audio does neither."""
    alike, unlike = ViterbiSearch(), ViterbiSearch()
    advance(alike, distances(list(range(100)), 100))
    advance(unlike, np.full((100, 100), FAR, np.float32))
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
    return AlignmentPath(reference_frames, centres, PathEvidence(sure))


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


def test_a_short_word_before_a_pause_does_not_begin_after_it() -> None:
    """A word of two frames, as an unstressed "to", ends at the pause."""
    centres = [0, HOP, 2 * HOP, 50 * HOP, 51 * HOP]
    time = path_of(np.arange(5), centres).time_of(word(1, 3))
    assert (time.start_sample, time.end_sample) == (HOP + 50, 2 * HOP - 50)


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


def test_what_was_spoken_long_ago_is_passed() -> None:
    """It is what lies before the speech frame of that many frames ago."""
    trace = path_of(np.arange(10, 20), [HOP * place for place in range(10)])
    assert trace.passed_before(10, 0) == 10
    assert trace.passed_before(4, 0) == 16
    assert trace.passed_before(11, 0) == 0
    assert path_of(np.zeros(0, np.int64), []).passed_before(1, 99) == 0


def test_what_was_spoken_before_a_sample_is_passed() -> None:
    """The last frame before the sample is passed, too; whatever is later is not."""
    trace = path_of(np.arange(10, 20), [HOP * place for place in range(10)])
    assert trace.passed_before(99, 0) == 0
    assert trace.passed_before(99, HOP + 1) == 12
    assert trace.passed_before(99, 1_000 * HOP) == 20
    assert trace.passed_before(2, HOP + 1) == 18, "the later of the two counts"
