"""The messages that the server and its engine and aligner processes exchange."""
