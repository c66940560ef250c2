"""The forced aligner: exact word times of complete audio and its text, from a neural network."""
