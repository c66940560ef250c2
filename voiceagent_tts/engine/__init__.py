"""Frames on time: Qwen3-TTS behind the engine seam, the one owner of its device."""
