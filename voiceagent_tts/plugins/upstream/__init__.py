"""Speech of another server, over its API, as an engine. Knows no listeners."""
