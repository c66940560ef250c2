"""Contexts: text in, audio and word times out, on the listener's clock."""
