"""Fixtures, drivers and generated checkpoints that tests and benchmarks share."""
