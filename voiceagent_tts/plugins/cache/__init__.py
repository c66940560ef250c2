"""Phrases that were spoken before: audio and words. Knows no contexts, no pacing and no routes."""
