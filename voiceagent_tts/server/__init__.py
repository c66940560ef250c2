"""The server: HTTP and WebSocket routes over the synthesizer."""
