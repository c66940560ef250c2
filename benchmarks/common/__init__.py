"""Shared by all benchmarks: provenance and the closing JSON line."""
