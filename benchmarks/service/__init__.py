"""Benchmarks of a server: latency, capacity and cost."""
