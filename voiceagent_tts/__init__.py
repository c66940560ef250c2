"""Self-hosted, real-time text-to-speech for voice agents."""

from importlib.metadata import version

__version__ = version("voiceagent-tts")
