"""Speech of another server, over OpenAI's speech API, as an engine. Knows no listeners."""
