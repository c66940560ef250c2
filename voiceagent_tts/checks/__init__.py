"""Checks that people run on a machine: verify, self test, step times, random weights."""
