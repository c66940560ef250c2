"""Recordings that users give: reading and examining them, and what a model makes of a voice."""
