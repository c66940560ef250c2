"""Samples: encodings, rates, messages and files."""
