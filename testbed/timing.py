"""Whether a function takes time linear in the length of its text."""

import gc
import time
from collections.abc import Callable

_SHORT_CHARS = 1_500
_FACTOR = 8


def growth(function: Callable[[str], object], unit: str) -> float:
    """How much more time a character takes in a text of `unit`s that is eight times as long.

    About 1 where the time is linear, about 8 where it is quadratic.
    """
    text = unit * (_SHORT_CHARS // len(unit))
    gc.collect()
    gc.disable()  # its passes over ever more live objects are not the function's
    try:
        short = min(_seconds(function, text) for _ in range(5))
        long = min(_seconds(function, text * _FACTOR) for _ in range(2))
    finally:
        gc.enable()
    return long / short / _FACTOR


def _seconds(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    function(text)
    return time.process_time() - start
