"""Pauses of garbage collection."""

import gc
import platform
import subprocess
import sys

import pytest

from voiceagent_tts.garbage import without_collection


def test_collection_is_as_it_was_after_a_pause() -> None:
    """It is enabled again also after an error, unless an outer pause goes on."""
    with pytest.raises(KeyError), without_collection():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


_THREADS = """
import threading
import psutil
from voiceagent_tts.garbage import map_large_blocks

map_large_blocks()
barrier = threading.Barrier(4)

def work():
    for _ in range(2):
        block = bytearray(30 << 20)
        barrier.wait()
        del block
    barrier.wait()

def rss_mb():
    return psutil.Process().memory_info().rss >> 20

before = rss_mb()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for thread in threading.enumerate()[1:]:
    thread.join()
print(rss_mb() - before)
"""


def test_no_thread_keeps_the_blocks_that_it_has_freed() -> None:
    """They are there for other programs, as if the process had started anew."""
    told = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True)
    assert not told.stderr
    assert int(told.stdout) < 20 or platform.libc_ver()[0] != "glibc"
