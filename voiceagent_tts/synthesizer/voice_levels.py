"""Remembers how loud each voice speaks, so that noise before the first word is not taken for it.

Knows no audio, only figures of `text.estimate`.
"""

from voiceagent_tts.lru import LRUCache

_MAX_VOICES = 1_000


class VoiceLevels:
    """Remembers the loudness of voices from one context to the next."""

    def __init__(self) -> None:
        self._levels = LRUCache[str, float](_MAX_VOICES)

    def level_of(self, voice: str) -> float:
        """Return the loudness of `voice`, as `SpeechClock.level`; 0.0 if it is unknown."""
        return self._levels.get(voice) or 0.0

    def add(self, voice: str, level: float) -> None:
        """Count the loudness of a context: half of the new figure, by its logarithm.

        A context that was silent throughout counts nothing.
        """
        if level:
            self._levels.put(voice, (level * (self._levels.get(voice) or level)) ** 0.5)
