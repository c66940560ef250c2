"""Audio of an agent's reply on its way to the loudspeaker: queued, paused, dropped, counted.

The loudspeaker pulls samples from its own thread; the conversation pushes them from the event loop.
This module knows no device, no words and no server.
"""

import threading
import time

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ


class Playback:
    """A queue of PCM16 at 24 kHz that a loudspeaker empties; methods may be called by any thread.

    Positions are samples of the current reply. Samples count as played once the loudspeaker has
    received them: it can no longer be kept from playing them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queued = bytearray()
        self._played_samples = 0
        self._is_paused = False
        self._audible_sample: int | None = None  # of the current reply, once it is queued
        self._audible_at_s: float | None = None
        self._latency_samples = 0

    @property
    def played_samples(self) -> int:
        """Samples of the current reply that the loudspeaker has received."""
        with self._lock:
            return self._played_samples

    @property
    def heard_samples(self) -> int:
        """Samples of the current reply that have left the loudspeaker, by its own estimate."""
        with self._lock:
            return max(0, self._played_samples - self._latency_samples)

    @property
    def audible_at_s(self) -> float | None:
        """When the first audible sample of the current reply is heard; None before it is played."""
        with self._lock:
            return self._audible_at_s

    @property
    def is_empty(self) -> bool:
        """Whether all queued audio was played."""
        with self._lock:
            return not self._queued

    def start_reply(self) -> None:
        """Drop queued audio and count from zero."""
        with self._lock:
            self._queued.clear()
            self._played_samples = 0
            self._is_paused = False
            self._audible_sample = self._audible_at_s = None

    def push(self, pcm: bytes) -> None:
        """Queue the next audio of the reply."""
        with self._lock:
            if self._audible_sample is None:
                silent = leading_silence_samples(pcm)
                if silent < len(pcm) // BYTES_PER_SAMPLE:
                    queued = len(self._queued) // BYTES_PER_SAMPLE
                    self._audible_sample = self._played_samples + queued + silent
            self._queued += pcm

    def pause(self) -> None:
        """Play silence until `resume`; the queue stays."""
        with self._lock:
            self._is_paused = True

    def resume(self) -> None:
        """Continue with the sample after the last played one."""
        with self._lock:
            self._is_paused = False

    def stop(self) -> int:
        """Drop queued audio; returns the played samples of the reply."""
        with self._lock:
            self._queued.clear()
            self._is_paused = False
            return self._played_samples

    def read(self, samples: int, latency_s: float) -> bytes:
        """The next audio for the loudspeaker, with silence where none is queued.

        Args:
            samples: number of samples to return.
            latency_s: time until the first of them is heard.
        """
        with self._lock:
            self._latency_samples = round(latency_s * SAMPLE_RATE_HZ)
            if self._is_paused:
                return bytes(samples * BYTES_PER_SAMPLE)
            pcm = bytes(self._queued[: samples * BYTES_PER_SAMPLE])
            del self._queued[: len(pcm)]
            before = self._played_samples
            self._played_samples += len(pcm) // BYTES_PER_SAMPLE
            if self._audible_at_s is None and self._audible_sample is not None:
                if before <= self._audible_sample < self._played_samples:
                    offset_s = (self._audible_sample - before) / SAMPLE_RATE_HZ
                    self._audible_at_s = time.monotonic() + latency_s + offset_s
        return pcm.ljust(samples * BYTES_PER_SAMPLE, b"\0")
