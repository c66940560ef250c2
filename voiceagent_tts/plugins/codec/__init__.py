"""Converts audio to frames of codes, and back: `codec encode` and `codec decode`."""
