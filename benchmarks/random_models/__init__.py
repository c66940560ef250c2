"""Models with random weights, of the published sizes and tiny ones, for timings."""
