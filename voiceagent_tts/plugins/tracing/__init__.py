"""Spans of contexts on a server, for an OpenTelemetry collector."""
