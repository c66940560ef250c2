"""Fixtures: one server that the tests of a module share."""

from testbed.server_fixtures import http, shared_server, wire

__all__ = ["http", "shared_server", "wire"]
