"""The process that hosts one engine or aligner."""
