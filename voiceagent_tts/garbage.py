"""When Python's garbage is not collected, and freed memory that goes back to the system."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h

_FULL_AFTER = 200  # collections of the middle generation between two full ones

_LARGE_BLOCK_BYTES = 4 << 20  # more than any array that a server makes for a frame of audio
_KEPT_BYTES = 16 << 20
"""Freed memory that a thread keeps for its next blocks. The first limit alone sets this one to 128
kB: every array of a marked frame came from the system anew, which doubled the time of marking."""


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


def collect_rarely() -> None:
    """Have full collections begin after 1.4 million new objects that stay, instead of 70,000.

    A full collection visits all objects, and the event loop waits: 250 ms with 1,500 sockets. What
    a server makes for sockets, contexts and requests is freed without one, which
    `tests/server/test_garbage.py` checks.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _FULL_AFTER)


def map_large_blocks() -> None:
    """Have blocks of 4 MiB and more go back to the system as soon as they are freed.

    By default glibc keeps a block as large as the largest that was freed so far, for each thread
    that had one: forty uploads of 30 MiB left 220 MB in a server that had nothing left to do.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_memory() -> None:
    """Return the memory of garbage and of freed objects to the system; for a process that is idle.

    A busy process collects its garbage as it goes, an idle one never. And glibc keeps what is
    freed: after a burst a process would have twice the memory that it needs, for as long as it
    is idle. Takes 2 ms where what is loaded is frozen, else up to 0.3 s.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
