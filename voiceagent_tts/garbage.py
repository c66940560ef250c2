"""When Python's garbage is not collected."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection within the block.

    Modules are a million objects that stay. While they load, collections would visit them again and
    again: a tenth to a fifth of the time that torch and Transformers take to load.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
