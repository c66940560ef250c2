"""HTTPS and WSS without a proxy."""
