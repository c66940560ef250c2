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


_FRAMES = """
import resource
from voiceagent_tts.garbage import map_large_blocks
from voiceagent_tts.plugins.provenance.keys import WatermarkKey
from voiceagent_tts.plugins.provenance.watermark import Marker, mark_together

map_large_blocks()
key = WatermarkKey(bytes(32))
markers = [Marker(key) for _ in range(8)]

def mark(times):
    for _ in range(times):
        mark_together(key, [marker.take(bytes(2 * 8 * 1920)) for marker in markers])

mark(20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
mark(20)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


def test_what_is_marked_again_and_again_needs_no_new_pages() -> None:
    """Memory that went back to the system with every frame doubled the time of marking."""
    told = subprocess.run([sys.executable, "-c", _FRAMES], capture_output=True, text=True)
    assert not told.stderr
    assert int(told.stdout) < 50
