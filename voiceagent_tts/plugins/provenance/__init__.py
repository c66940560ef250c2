"""Marks generated audio, finds the mark again, and describes where audio comes from."""
