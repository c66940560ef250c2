"""Fixtures of the command line."""

from testbed.command_fixtures import command, command_here, full_disk

__all__ = ["command", "command_here", "full_disk"]
