"""Audio: sample encodings, rates, messages, levels and files."""
