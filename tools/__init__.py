"""Programs that make what the package carries, such as the network of the online aligner."""
