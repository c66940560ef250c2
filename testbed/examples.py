"""Set how many examples property tests try: fewer in `make test` than in `make test-thorough`."""

import hashlib
import math

import hypothesis
import pytest

_THOROUGH = 100
_QUICK = 25
_SAMPLED_ONE_OF = 5
NOT_QUICK = ("thorough", "services", "browser", "install", "soak", "tools")
"""Markers of the tests that `make test` leaves out."""


def register_profiles() -> None:
    """Register `quick` and `thorough`, and load `quick`.

    Neither has a deadline, nor a limit of the time in which the first examples are made: both
    depend on the load of the machine.
    """
    for name, count in (("quick", _QUICK), ("thorough", _THOROUGH)):
        hypothesis.settings.register_profile(
            name,
            deadline=None,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
            max_examples=count,
        )
    hypothesis.settings.load_profile("quick")


def is_left_out(item: pytest.Item, commit: str) -> bool:
    """Return whether a test is not in the fifth of its kind that the commit chooses.

    There are two kinds: property tests of `make test`, and cases that are marked `costly`. Other
    tests are never left out here.
    """
    name = item.nodeid.partition("[")[0]
    if item.get_closest_marker("costly"):
        name = item.nodeid
    elif any(map(item.get_closest_marker, NOT_QUICK)) or not getattr(
        getattr(item, "obj", None), "is_hypothesis_test", False
    ):
        return False
    return hashlib.sha256(f"{commit} {name}".encode()).digest()[0] % _SAMPLED_ONE_OF != 0


def examples(thorough: int) -> int:
    """Return how many examples the loaded profile tries where `thorough` tries this many."""
    share = hypothesis.settings().max_examples / _THOROUGH
    return math.ceil(thorough * min(share, 1.0))
