"""hibari: a small natural voice that reports its own word times, on any CPU."""
