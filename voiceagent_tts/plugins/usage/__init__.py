"""Counts what each key uses, by day: `GET /v1/usage`."""
