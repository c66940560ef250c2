"""What every benchmark shares: percentiles, provenance and the closing JSON line."""
