"""Types for options with known values; `TTS.list_voices` returns the voices of a server."""

from typing import Literal

from voiceagent_tts.protocol.messages import SampleRate

__all__ = ["Language", "SampleRate"]

Language = Literal["de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh"]
"""Languages that every engine of this project speaks; a server may support more."""
