"""Fixtures: the tiny checkpoints of `tests/reference`."""

from testbed.tiny_fixtures import load_tiny

__all__ = ["load_tiny"]
