"""The embedded voice: an engine over espeak-ng."""
