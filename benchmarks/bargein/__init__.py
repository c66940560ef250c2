"""Barge-ins with slow and killed engines of our own; the truth is exact."""
