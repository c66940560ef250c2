"""Speaks every text of a folder into audio files: `batch`."""
