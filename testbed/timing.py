"""Test whether a function's time is linear in the length of its text."""

import gc
import time
from collections.abc import Callable

_SHORT_CHARS = 1_500
_FACTOR = 8
_BOUND = 3


def is_linear(function: Callable[[str], object], unit: str) -> bool:
    """Return whether the time per character stays about constant in a text eight times as long.

    The texts repeat `unit`. The time per character grows by a factor of about 1 if the function is
    linear, and of about 8 if it is quadratic; the bound is 3.
    """
    text = unit * (_SHORT_CHARS // len(unit))
    gc.disable()  # garbage collection of more and more live objects would distort the times
    try:
        short_s = min(_seconds(function, text) for _ in range(5))
        bound_s = _BOUND * _FACTOR * short_s
        return any(_seconds(function, text * _FACTOR) < bound_s for _ in range(2))
    finally:
        gc.enable()


def _seconds(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    function(text)
    return time.process_time() - start
