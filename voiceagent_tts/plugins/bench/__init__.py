"""Benchmarks of speech servers, ours and other people's, measured at the client."""
