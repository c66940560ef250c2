"""Streaming time stretch: faster or slower speech at its own pitch.

FFmpeg's `atempo` (waveform similarity overlap-add) on the 24 kHz PCM16 of one context, with a delay
of about two codec frames. Positions scale by `1 / speed`. The module loads PyAV, which takes 35 MB
and 0.1 s: a server does so in a thread, when a speed first needs it.
"""

from fractions import Fraction

import av
import numpy as np
from av import error as av_error
from av.filter import Graph

from voiceagent_tts.core import SAMPLE_RATE_HZ

_BLOCK_SAMPLES = 960
"""Each `atempo` keeps what it made of its last input until the next, so input comes in blocks."""


class TimeStretch:
    """Stretches one context's audio from the engine's speed to the requested one.

    Args:
        speed: 0.25 to 4.0; 2.0 takes half the time.
    """

    HELD_SAMPLES = 3_840
    """Maximum input that is not in the output yet."""

    def __init__(self, speed: float) -> None:
        self._graph = Graph()
        source = self._graph.add_abuffer(
            sample_rate=SAMPLE_RATE_HZ,
            format="s16",
            layout="mono",
            time_base=Fraction(1, SAMPLE_RATE_HZ),
        )
        # One `atempo` slows down to half the speed at most.
        factors = [0.5, speed / 0.5] if speed < 0.5 else [speed]
        last = source
        for factor in factors:
            tempo = self._graph.add("atempo", str(factor))
            last.link_to(tempo)
            last = tempo
        last.link_to(self._graph.add("abuffersink"))
        self._graph.configure()
        self._pushed_samples = 0

    def push(self, pcm: bytes) -> bytes:
        """Append whole samples; return the output so far, possibly empty."""
        if not pcm:
            return b""
        samples = np.frombuffer(pcm, "<i2")[None]  # [1, S]
        for start in range(0, samples.shape[1], _BLOCK_SAMPLES):
            block = samples[:, start : start + _BLOCK_SAMPLES]
            frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate = SAMPLE_RATE_HZ
            frame.time_base = Fraction(1, SAMPLE_RATE_HZ)
            frame.pts = self._pushed_samples
            self._pushed_samples += block.shape[1]
            self._graph.push(frame)
        return self._pull()

    def finish(self) -> bytes:
        """Return the rest; call once, after the last samples."""
        if not self._pushed_samples:
            return b""
        self._graph.push(None)
        return self._pull()

    def _pull(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            try:
                frame = self._graph.pull()
            except (av_error.BlockingIOError, av_error.EOFError):  # nothing yet, nothing more
                return b"".join(pieces)
            assert isinstance(frame, av.AudioFrame)
            pieces.append(frame.to_ndarray().astype("<i2").tobytes())
