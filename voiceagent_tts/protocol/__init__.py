"""The wire without I/O."""
