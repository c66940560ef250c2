from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.aligner.online.espeak_reference import Fork
from voiceagent_tts.aligner.online.tuning import (
    GAP_ENTRY_COSTS,
    INITIAL_GAP_COSTS,
    OMISSION_COST,
    SKIP_COST,
    STAY_COST,
)
from voiceagent_tts.aligner.online.viterbi import PathEnd, State, ViterbiSearch

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
    no_gap = np.full((len(rows), 2), np.inf, np.float32)
    paths.advance(window, rows, no_gap, np.zeros(len(window) + 1, np.bool_))


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


@given(
    seed=st.integers(0, 10_000),
    frames=st.integers(1, 40),
    length=st.integers(1, 30),
    forks=st.sampled_from(((), FORKS)),
)
def test_the_search_agrees_with_its_plain_twin(
    seed: int, frames: int, length: int, forks: tuple[Fork, ...]
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 20, (frames, length)).astype(np.float32)
    gap_costs = rng.integers(0, (9, 5), (frames, 2)).astype(np.float32)
    starts = rng.random(length + 1) < 0.3
    paths = ViterbiSearch()
    for first in range(0, frames, 8):
        part = slice(first, first + 8)
        paths.advance(range(length), rows[part], gap_costs[part], starts, forks)
    costs = plain_costs(rows, gap_costs, starts, forks)
    assert costs[paths.end] == min(costs.values())
    path, is_speech = paths.backtrace(paths.end)
    assert (np.diff(path) >= 0).all()
    assert len(path) == frames == len(is_speech)


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


def test_a_step_costs_the_same_however_long_the_reference_is() -> None:
    """Of an hour of reference only a window around the head is searched."""
    paths = ViterbiSearch()
    advance(paths, distances(list(range(1_000)), 1_000))
    window = paths.window(360_000)
    assert paths.head in window
    assert len(window) <= 401
