import numpy as np
import pytest

from voiceagent_tts.plugins.bench.statistics import (
    difference,
    mean_difference,
    percentiles,
    ratio,
    share,
    share_difference,
)


def test_an_interval_contains_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 samples of an exponential, 95 % intervals of the median contain it in 89 to 99 %."""
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(200):
        interval = percentiles(rng.exponential(1.0, 60).tolist(), seed)[50]
        hits += interval.low <= np.log(2) <= interval.high
    assert 178 <= hits <= 198


def test_percentiles_are_those_of_the_values() -> None:
    """Linear interpolation; equal values have no spread; no values have no figures."""
    figures = percentiles([float(value) for value in range(101)])
    assert [figures[rank].value for rank in (50, 90, 95, 99)] == [50, 90, 95, 99]
    equal = percentiles([7.0] * 30)[95]
    assert (equal.low, equal.value, equal.high) == (7, 7, 7)
    assert percentiles([]) == {}


def test_an_interval_of_many_values_is_narrower_than_one_of_few() -> None:
    """Also where only a part of the values is drawn."""
    rng = np.random.default_rng(2)
    widths = []
    for size in (100, 4_000, 40_000):
        interval = percentiles(rng.normal(100, 10, size).tolist())[50]
        widths.append(interval.high - interval.low)
    assert widths[0] > 3 * widths[1] > 6 * widths[2]


def test_a_ratio_of_equal_processes_is_noise_and_of_others_is_not() -> None:
    """The interval contains 1 for two samples of one process, and not for twice its values."""
    rng = np.random.default_rng(3)
    before, after = (rng.normal(100, 10, 200).tolist() for _ in range(2))
    same = ratio(before, after, 50)
    assert same is not None and same.low < 1 < same.high
    double = ratio(before, [2 * value for value in after], 95)
    assert double is not None and double.low > 1.8 and double.value == pytest.approx(2, rel=0.1)
    assert ratio([0.0] * 5, after, 50) is None
    assert ratio([-1.0, 2.0, 3.0], after, 50) is None  # a percentile of some draws is negative


def test_a_difference_of_equal_processes_is_noise_and_of_others_is_not() -> None:
    """Also where values are below zero, which have no ratio."""
    rng = np.random.default_rng(4)
    before, after = (rng.normal(-5, 10, 200).tolist() for _ in range(2))
    later = [value + 20 for value in after]
    for same, other in (
        (difference(before, after, 50), difference(before, later, 50)),
        (mean_difference(before, after), mean_difference(before, later)),
    ):
        assert same.low < 0 < same.high
        assert other.low > 15 and other.value == pytest.approx(20, abs=5)


def test_a_difference_of_shares_has_its_score_interval() -> None:
    """Figures of Newcombe 1998, table II, method 10; nothing is known of nothing."""
    found = share_difference((48, 80), (56, 70))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    few = share_difference((3, 10), (9, 10))
    assert (few.value, few.low, few.high) == pytest.approx((0.6, 0.1705, 0.8090), abs=1e-4)
    assert share_difference((0, 0), (5, 10)).low < 0 < share_difference((0, 0), (5, 10)).high


def test_a_share_has_its_score_interval() -> None:
    """Figures of Newcombe 1998, table I: 81 of 263 and 0 of 20; nothing is known of nothing."""
    known = share(81, 263)
    assert (known.low, known.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    none = share(0, 20)
    assert (none.value, none.low, none.high) == pytest.approx((0, 0, 0.1611), abs=1e-4)
    assert (share(0, 0).low, share(0, 0).high) == (0, 1)
