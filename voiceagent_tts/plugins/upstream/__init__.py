"""Speech of another server, over its API, as an engine. Knows no listeners."""

UPSTREAM_KEY = "VOICEAGENT_TTS_UPSTREAM_KEY"
"""The variable of the worker's environment that has the key for the upstream."""
