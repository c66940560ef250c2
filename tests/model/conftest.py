"""Fixtures: the tiny checkpoints of `tests/reference`."""

from testbed.tiny_fixtures import base, custom_voice, load_tiny

__all__ = ["base", "custom_voice", "load_tiny"]
