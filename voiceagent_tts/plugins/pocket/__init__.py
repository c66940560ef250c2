"""Pocket TTS as an engine: natural voices on a CPU."""
