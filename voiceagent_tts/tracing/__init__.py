"""Spans of OpenTelemetry: one for each context, in the client, the server and the engine worker."""
