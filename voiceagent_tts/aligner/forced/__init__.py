"""The forced aligner: a finished clip and its text become exact word times, by a network."""
