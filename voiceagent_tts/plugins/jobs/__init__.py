"""Texts that no listener waits for: several in one request; jobs, with a queue, files and news."""
