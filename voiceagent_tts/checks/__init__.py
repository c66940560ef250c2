"""Programs that people run to check a machine and its weights."""
