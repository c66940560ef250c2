"""Measure functions, and test whether their time is linear in the length of their text."""

import gc
import time
from collections.abc import Callable

_SHORT_CHARS = 1_500
_FACTOR = 8
_BOUND = 3
_TRIALS = 5


def is_linear(function: Callable[[str], object], unit: str) -> bool:
    """Return whether the time per character stays about constant in a text eight times as long.

    The texts repeat `unit`. The time per character grows by a factor of about 1 if the function is
    linear, and of about 8 if it is quadratic; the bound is 3.
    """
    text = unit * (_SHORT_CHARS // len(unit))
    gc.disable()  # garbage collection of more and more live objects would distort the times
    try:
        for _ in range(_TRIALS):  # each time both: a machine may be fast at first, and slow later
            bound_s = _BOUND * _FACTOR * fastest_s(lambda: function(text))
            if seconds_of(lambda: function(text * _FACTOR)) < bound_s:
                return True
        return False
    finally:
        gc.enable()


def fastest_s(function: Callable[[], object]) -> float:
    """The least of some trials: other programs only ever add to what a function takes."""
    return min(seconds_of(function) for _ in range(_TRIALS))


def seconds_of(function: Callable[[], object]) -> float:
    """Processor time of a call, without that of other threads of the tests."""
    start = time.thread_time()
    function()
    return time.thread_time() - start
