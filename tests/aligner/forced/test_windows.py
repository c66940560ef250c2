"""Clips longer than the model was trained on: window by window, every unit where it is spoken."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.aligner.forced.windows import WINDOW_SAMPLES, Window, WindowedClip
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word

Spans = list[tuple[int, int]]


def hear(window: Window, spans: Spans) -> list[int]:
    """What a model says that hears all words of a window but the one that its end cuts off.

    Words that are not in the window are all at its end.
    """
    length = window.end_sample - window.start_sample
    times: list[int] = []
    for unit in window.units:
        start, end = (place - window.start_sample for place in spans[unit[0].char_start])
        is_whole = end <= length
        times += (max(start, 0), end) if is_whole else (min(start, length), length)
    return times


def align(spans: Spans, samples: int) -> tuple[list[int], list[Window]]:
    """The times that come together, and the windows that were asked for."""
    clip = WindowedClip([(Word("word", place, place),) for place in range(len(spans))], samples)
    windows: list[Window] = []
    while window := clip.next_window():
        windows.append(window)
        clip.take(window, hear(window, spans))
    return clip.times, windows


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 2.0, 40.0]), st.sampled_from([0.05, 0.4, 3.0])),
        min_size=1,
        max_size=500,
    ),
    st.sampled_from([0.0, 5.0, 700.0]),
)
def test_times_are_those_of_one_hearing(pauses: list[tuple[float, float]], after: float) -> None:
    """Pauses, crowds of words and silence at the end: all times come, each from a whole word."""
    spans: Spans = []
    now = 0
    for pause, length in pauses:
        start = now + round(pause * SAMPLE_RATE_HZ)
        now = start + round(length * SAMPLE_RATE_HZ)
        spans.append((start, now))
    samples = now + round(after * SAMPLE_RATE_HZ)
    times, windows = align(spans, samples)
    assert times == [time for span in spans for time in span]
    assert all(window.end_sample - window.start_sample <= WINDOW_SAMPLES for window in windows)
    assert all(before.start_sample <= after.start_sample for before, after in pairwise(windows))
    assert all(window.end_sample <= samples for window in windows)


def test_an_even_clip_takes_few_windows() -> None:
    """An hour of even speech is heard little more than once."""
    second = SAMPLE_RATE_HZ
    spans = [(place * second // 2, place * second // 2 + second // 3) for place in range(7200)]
    _, windows = align(spans, 3600 * second)
    assert len(windows) == 13
    assert sum(len(window.units) for window in windows) < 1.3 * len(spans)


def test_five_minutes_are_one_window() -> None:
    """What the model was trained on is asked for at once."""
    spans = [(0, 100), (200, 300)]
    assert len(align(spans, WINDOW_SAMPLES)[1]) == 1
    assert align(spans, 0) == ([0] * 4, [])
