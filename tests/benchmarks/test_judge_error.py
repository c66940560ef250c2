"""The error of the judge of `bench bargein`, against native word times."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from benchmarks.bargein.judge_error import JudgeError, measure_judge


def measured(languages: list[str], seed: int) -> list[JudgeError]:
    """The errors in these languages, of a process that has spoken nothing before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure_judge, languages, seed).result()


def test_the_judges_error_is_measured() -> None:
    """Its figures are within the bounds that the report relies on."""
    (error,) = measured(["it"], 1)
    assert error.figures["words"] > 100 and error.figures["cuts"] > 20
    assert error.figures["error_p95_ms"] <= 40
    assert error.figures["within_one_pct"] == 100


@pytest.mark.thorough
def test_the_judge_is_within_40_ms_in_five_languages() -> None:
    """p95 of the native word times; and most cuts are exact."""
    for error in measured(["en", "de", "fr", "es", "it"], 2):
        assert error.figures["within_one_pct"] == 100
        assert error.figures["error_p95_ms"] <= 40
        assert error.figures["exact_pct"] >= 90
