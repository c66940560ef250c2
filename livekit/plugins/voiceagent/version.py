"""The plugin's version, which is the version of voiceagent-tts."""

from voiceagent_tts import __version__

__all__ = ["__version__"]
