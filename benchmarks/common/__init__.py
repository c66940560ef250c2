"""Shared by all benchmarks: percentiles, provenance and the closing JSON line."""
