"""Self-hosted, real-time text-to-speech for voice agents."""

__version__ = "0.1.0"
