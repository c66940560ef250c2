"""When Python's garbage is not collected."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection within the block.

    Modules are a million objects that stay. While they load, collections would visit them again and
    again: a tenth of the time that torch takes to load, and a quarter of Transformers'.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
