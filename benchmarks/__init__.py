"""Programs that answer one question each; the last line of standard output is one JSON object."""
