"""The process that hosts an engine, and the server's end of it."""
