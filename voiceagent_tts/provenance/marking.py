"""Marks the audio of all contexts of a server: together, and beside the event loop.

A GPU makes frames of many contexts in one step, and they arrive together. Marked one by one in the
event loop, they took more of its time than everything else that a server does with a frame.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from voiceagent_tts.provenance.keys import WatermarkKey
from voiceagent_tts.provenance.watermark import Marker, Unmarked, mark_together

_FEW_SLOTS = 14
"""Two frames are marked in the event loop: to reach the thread takes as long."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    audio: Unmarked
    on_marked: Callable[[bytes], None]


class Marking:
    """Marks audio with one key.

    Args:
        key: selects the watermark.
    """

    def __init__(self, key: WatermarkKey) -> None:
        self.key = key
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(1, "watermark")
        self._is_busy = False

    def mark(self, marker: Marker, pcm: bytes, on_marked: Callable[[bytes], None]) -> None:
        """Mark the next PCM16 samples of a context; `on_marked` receives as many, soon.

        Args:
            marker: the context's; its samples are marked in the order of the calls.
            pcm: whole samples at 24 kHz.
            on_marked: called in the event loop, in one of its next turns.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._mark_waiting)
        self._waiting.append(_Waiting(marker.take(pcm), on_marked))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    def _mark_waiting(self) -> None:
        if self._is_busy or not self._waiting:
            return  # what waits is marked when the thread is done
        batch, self._waiting = self._waiting, []
        audio = [each.audio for each in batch]
        if sum(len(each.inputs) for each in audio) <= _FEW_SLOTS:
            _return(batch, mark_together(self.key, audio))
            return
        self._is_busy = True
        marking = asyncio.get_running_loop().run_in_executor(
            self._thread, mark_together, self.key, audio
        )
        marking.add_done_callback(lambda done: self._on_done(batch, done))

    def _on_done(self, batch: Sequence[_Waiting], marking: asyncio.Future[list[bytes]]) -> None:
        self._is_busy = False
        _return(batch, marking.result())
        self._mark_waiting()


def _return(batch: Sequence[_Waiting], marked: Sequence[bytes]) -> None:
    for each, pcm in zip(batch, marked, strict=True):
        each.on_marked(pcm)
