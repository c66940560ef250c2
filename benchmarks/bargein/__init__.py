"""After a barge-in, does the history have the words that were heard? `run` is the benchmark."""
