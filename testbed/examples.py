"""Set how many examples property tests try: fewer in `make test` than in `make test-thorough`."""

import math

import hypothesis

_THOROUGH = 100
_QUICK = 25


def register_profiles() -> None:
    """Register `quick` and `thorough`, and load `quick`.

    Neither has a deadline, because an example's duration depends on the load of the machine.
    """
    hypothesis.settings.register_profile("quick", deadline=None, max_examples=_QUICK)
    hypothesis.settings.register_profile("thorough", deadline=None, max_examples=_THOROUGH)
    hypothesis.settings.load_profile("quick")


def examples(thorough: int) -> int:
    """Return how many examples the loaded profile tries where `thorough` tries this many."""
    share = hypothesis.settings().max_examples / _THOROUGH
    return math.ceil(thorough * min(share, 1.0))
