"""OpenAI's speech API over HTTP: whole texts as files and streams, in the formats of players."""
