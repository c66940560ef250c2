import numpy as np
import pytest

from voiceagent_tts.plugins.bench.statistics import percentiles, share


def test_an_interval_contains_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 samples of an exponential, 95 % intervals of the median contain it in 89 to 99 %."""
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(200):
        interval = percentiles(rng.exponential(1.0, 60).tolist(), seed)[50]
        hits += interval.low <= np.log(2) <= interval.high
    assert 178 <= hits <= 198


def test_a_share_has_its_score_interval() -> None:
    """Figures of Newcombe 1998, table I: 81 of 263 and 0 of 20; nothing is known of nothing."""
    known = share(81, 263)
    assert (known.low, known.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    none = share(0, 20)
    assert (none.value, none.low, none.high) == pytest.approx((0, 0, 0.1611), abs=1e-4)
    assert (share(0, 0).low, share(0, 0).high) == (0, 1)
