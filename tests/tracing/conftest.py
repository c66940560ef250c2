"""The fixtures of tracing."""

from testbed.tracing_fixtures import host, receiver

__all__ = ["host", "receiver"]
