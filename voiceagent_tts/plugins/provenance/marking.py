"""The filter of a server's audio: marks that of several contexts at once.

A GPU makes frames of many contexts in one step, and they arrive together. Marked one by one, they
took more of the event loop's time than everything else that a server does with a frame. A thread
beside the loop was tried on an H200 and was slower: both waited for Python's global lock.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.audio.output import PcmFilter
from voiceagent_tts.plugins.provenance.keys import WatermarkKey
from voiceagent_tts.plugins.provenance.watermark import Marker, Unmarked, mark_together

_MOST_TOGETHER = 8
"""Contexts in one computation, and in one iteration of the event loop: more leave a processor's
caches, and take up to ten times as long."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    audio: Unmarked
    on_marked: Callable[[bytes], None]


class Marking:
    """Marks audio with one key."""

    def __init__(self, key: WatermarkKey) -> None:
        self.key = key
        self._waiting: deque[_Waiting] = deque()

    @property
    def key_id(self) -> str:
        """Id of the key of the watermark."""
        return self.key.id

    def start(self) -> PcmFilter:
        """Return what marks the audio of one context."""
        return functools.partial(self.mark, Marker(self.key))

    def mark(self, marker: Marker, pcm: bytes, on_marked: Callable[[bytes], None]) -> None:
        """Mark the next PCM16 samples of a context; `on_marked` receives as many, soon.

        Args:
            marker: the context's; its samples are marked in the order of the calls.
            pcm: whole samples at 24 kHz.
            on_marked: called in a later iteration of the event loop.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._mark_some)
        self._waiting.append(_Waiting(marker.take(pcm), on_marked))

    def _mark_some(self) -> None:
        loop = asyncio.get_running_loop()
        some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_TOGETHER))]
        if self._waiting:
            loop.call_soon(self._mark_some)
        marked = mark_together(self.key, [each.audio for each in some])
        for each, pcm in zip(some, marked, strict=True):
            loop.call_soon(each.on_marked, pcm)  # one that fails is no other context's loss
