"""Audio files in place of a microphone and a loudspeaker, in real time.

This module knows no words and no conversation.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile
import soxr

from agents.playback import Playback
from agents.speech_detector import MICROPHONE_RATE_HZ
from voiceagent_tts.core import SAMPLE_RATE_HZ

_FRAME_S = 0.02
_IDLE_S = 1.0
"""Silence after which a conversation whose user says no more has ended."""


class SoundFiles:
    """Plays a file into the agent, and records what the agent plays.

    Args:
        playback: what the agent plays.
        microphone: the user's audio.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, playback: Playback, microphone: Path) -> None:
        self._playback = playback
        try:
            with microphone.open("rb") as file:  # Python's errors say what is wrong with a path
                samples, rate_hz = soundfile.read(file, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise OSError(f"{microphone}: {error.error_string}") from error
        self._user = _resampled(samples.mean(axis=1), rate_hz, MICROPHONE_RATE_HZ)
        self._agent = bytearray()

    async def frames(self, is_idle: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The file's audio as it is played, then silence until the agent is idle."""
        pcm = self._user.tobytes()
        size = round(MICROPHONE_RATE_HZ * _FRAME_S) * 2
        next_at = idle_at = time.monotonic()
        while pcm or next_at - idle_at < _IDLE_S:
            frame, pcm = pcm[:size].ljust(size, b"\0"), pcm[size:]
            self._agent += self._playback.read(round(SAMPLE_RATE_HZ * _FRAME_S), 0.0)
            yield frame
            if pcm or not is_idle():
                idle_at = next_at
            next_at += _FRAME_S
            await asyncio.sleep(next_at - time.monotonic())

    def write(self, path: Path) -> None:
        """Write the recording as a stereo WAV: the agent on the left, the user on the right.

        Raises:
            OSError: the file cannot be written.
        """
        agent = np.frombuffer(bytes(self._agent), "<i2")
        user = _resampled(self._user / 32_768, MICROPHONE_RATE_HZ, SAMPLE_RATE_HZ)
        length = max(len(agent), len(user))
        tracks = [np.pad(track, (0, length - len(track))) for track in (agent, user)]
        file = BytesIO()
        soundfile.write(
            file, np.stack(tracks, axis=1), SAMPLE_RATE_HZ, format="WAV", subtype="PCM_16"
        )
        path.write_bytes(file.getvalue())


def _resampled(samples: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """Floats in [-1, 1] as 16-bit integers at another sample rate."""
    floats = soxr.resample(samples, from_hz, to_hz)
    return np.clip(np.rint(floats * 32_767), -32_768, 32_767).astype("<i2")
