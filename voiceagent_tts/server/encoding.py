"""Threads in which audio is compressed, shared by all callers.

Some codecs take 50 ms for a second of audio. They release the GIL while they compute.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

_THREADS = min(2, max(1, (os.cpu_count() or 1) - 1))  # one processor is for the event loop
_places = WeakValueDictionary[tuple[ThreadPoolExecutor, str], asyncio.Semaphore]()
"""Each owner has at most twice as many pieces in the queue as there are threads, so that the pieces
of one owner do not delay those of all others."""

_T = TypeVar("_T")


def encoder_threads(name: str) -> ThreadPoolExecutor:
    """Return new threads for one kind of answer, so that it does not wait for other kinds."""
    return ThreadPoolExecutor(_THREADS, name)


STREAMS = encoder_threads("stream-encoder")  # for sockets and streamed responses


async def computed(threads: ThreadPoolExecutor, owner: str, work: Callable[[], _T]) -> _T:
    """Return the result of `work`, which runs in one of the threads when it is its turn."""
    async with _places.setdefault((threads, owner), asyncio.Semaphore(2 * _THREADS)):
        return await asyncio.get_running_loop().run_in_executor(threads, work)
