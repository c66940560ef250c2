"""The barge-in benchmark: does the history have the words that were heard? Start with `run`."""
