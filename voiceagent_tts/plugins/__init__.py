"""What stands beside speech. The core finds these packages by `hooks`, and works without them."""
