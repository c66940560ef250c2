"""Phrases that were spoken before: audio and words, by a worker in front of the engine's."""
