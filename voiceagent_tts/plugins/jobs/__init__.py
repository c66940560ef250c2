"""Texts that are spoken later: a queue in Redis, storage of the files, and news by webhook."""
