"""Kokoro: a natural voice in seven languages that reports its own word times, on fast CPUs."""
