"""Whether a function takes time linear in the length of its text."""

import gc
import time
from collections.abc import Callable

_FACTOR = 8


def growth(function: Callable[[str], object], text: str) -> float:
    """How much more time a character takes in a text that is eight times as long.

    About 1 where the time is linear, about 8 where it is quadratic. `text` should be long enough
    to take some milliseconds.
    """
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
