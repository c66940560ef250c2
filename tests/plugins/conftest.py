"""Fixtures of the command line, and one server that the tests of a module share."""

from testbed.command_fixtures import command, command_here, full_disk
from testbed.server_fixtures import http, shared_server, wire

__all__ = ["command", "command_here", "full_disk", "http", "shared_server", "wire"]
