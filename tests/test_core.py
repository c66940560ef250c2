"""Shared types: the playout clock of one context."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock

_sends = st.lists(
    st.tuples(st.integers(1, 3 * SAMPLE_RATE_HZ), st.floats(0.0, 3.0)), min_size=1, max_size=20
)


@given(_sends, st.sampled_from([0.5, 1.0, 2.0]))
def test_time_is_either_played_or_a_gap(sends: list[tuple[int, float]], speed: float) -> None:
    """From the first send to the end of playback, audio and the gaps that `send` returns add up."""
    clock = PlayoutClock(speed)
    times_s = list(accumulate((wait_s for _, wait_s in sends), initial=100.0))[1:]
    gaps_s = [clock.send(samples, now) for (samples, _), now in zip(sends, times_s, strict=True)]
    played_s = sum(samples for samples, _ in sends) / SAMPLE_RATE_HZ / speed
    assert gaps_s[0] == 0.0
    assert clock.underrun_s == pytest.approx(sum(gaps_s))
    assert clock.playout_end - times_s[0] == pytest.approx(played_s + sum(gaps_s))
    assert clock.sent_samples == sum(samples for samples, _ in sends)


@given(_sends)
def test_played_audio_never_shrinks(sends: list[tuple[int, float]]) -> None:
    """Playback moves forward, and stops where the audio stops."""
    clock, now, played = PlayoutClock(), 100.0, [0]
    for samples, wait_s in sends:
        now += wait_s
        played.append(clock.played_samples(now))
        clock.send(samples, now)
        played.append(clock.played_samples(now))
    assert all(later - before >= -1 for before, later in pairwise(played))  # rounded
    assert clock.played_samples(clock.playout_end) == clock.sent_samples
    assert clock.lead_s(clock.playout_end) == 0.0
