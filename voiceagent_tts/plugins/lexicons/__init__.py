"""Lexicons of voices: files beside them, which are read again when they change."""
