"""Finds the user's turns in the audio of a microphone, by Silero's model of voice activity.

The model is the ONNX file that Pipecat bundles. This module knows no devices and no words.
"""

import enum
import time
from collections import deque

from voiceagent_tts.core import BYTES_PER_SAMPLE

MICROPHONE_RATE_HZ = 16_000
_START_S = 0.064
"""Voice that starts an utterance, two windows of the model. It is short because a reply only pauses
at first, and goes on if the sound was no utterance."""
_BEFORE_S = 0.4
"""Audio before the detected start that belongs to the utterance."""


class Detection(enum.Enum):
    """What a piece of audio changed."""

    NOTHING = enum.auto()
    STARTED = enum.auto()
    """The user started to speak."""
    ENDED = enum.auto()
    """The user has been silent for long enough to end the turn."""


class SpeechDetector:
    """Detects where utterances start and end, and keeps the audio of the current one.

    Args:
        end_silence_s: silence that ends a turn.

    Attributes:
        utterance: audio of the current utterance, PCM16 at `MICROPHONE_RATE_HZ`.
        ended_at_s: when the last voice of the utterance was received, `time.monotonic()`.
    """

    def __init__(self, *, end_silence_s: float) -> None:
        # Pipecat prints a line where it is imported; by now a program has set its log.
        from pipecat.audio.vad.silero import SileroVADAnalyzer
        from pipecat.audio.vad.vad_analyzer import VADParams

        params = VADParams(
            confidence=0.6, start_secs=_START_S, stop_secs=end_silence_s, min_volume=0.0
        )
        self.utterance = bytearray()
        self.ended_at_s = 0.0
        self._analyzer = SileroVADAnalyzer(sample_rate=MICROPHONE_RATE_HZ, params=params)
        self._analyzer.set_sample_rate(MICROPHONE_RATE_HZ)
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._is_speaking = False
        self._voice_bytes = 0

    @property
    def is_speaking(self) -> bool:
        """Whether the user's turn has started and not ended."""
        return self._is_speaking

    @property
    def voice_s(self) -> float:
        """Length of the voice in the current utterance, without the silence around it."""
        return self._voice_bytes / BYTES_PER_SAMPLE / MICROPHONE_RATE_HZ

    async def detect(self, pcm: bytes) -> Detection:
        """Receive the next audio of the microphone."""
        state = (await self._analyzer.analyze_audio(pcm)).name
        has_voice = state in ("STARTING", "SPEAKING")
        if has_voice:
            self.ended_at_s = time.monotonic()
            self._voice_bytes += len(pcm)
        if self._is_speaking:
            self.utterance += pcm
            if state == "QUIET":
                self._is_speaking = False
                return Detection.ENDED
            return Detection.NOTHING
        self._keep_recent(pcm)
        if state == "SPEAKING":
            self._is_speaking = True
            self.utterance = bytearray(b"".join(self._recent))
            self._recent.clear()
            self._recent_bytes = 0
            return Detection.STARTED
        if not has_voice:
            self._voice_bytes = 0
        return Detection.NOTHING

    async def aclose(self) -> None:
        """Free the thread that runs the model."""
        await self._analyzer.cleanup()

    def _keep_recent(self, pcm: bytes) -> None:
        self._recent.append(pcm)
        self._recent_bytes += len(pcm)
        while self._recent_bytes > _BEFORE_S * MICROPHONE_RATE_HZ * BYTES_PER_SAMPLE:
            self._recent_bytes -= len(self._recent.popleft())
