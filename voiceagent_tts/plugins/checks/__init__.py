"""Checks of this machine, its GPU, models and settings: `verify` and `doctor`."""
