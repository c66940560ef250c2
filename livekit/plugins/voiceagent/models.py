"""Names that a type checker can know. What a server speaks is told by `TTS.list_voices`."""

from typing import Literal

from voiceagent_tts.protocol.messages import SampleRate

__all__ = ["Language", "SampleRate"]

Language = Literal["de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh"]
"""Languages that every engine of this project speaks; a server may know more."""
