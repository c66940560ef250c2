"""The plugin's version is the package's."""

from voiceagent_tts import __version__

__all__ = ["__version__"]
