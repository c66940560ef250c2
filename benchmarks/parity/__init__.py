"""Compare the network's output with that of the official package."""
