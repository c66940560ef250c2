"""Clones over HTTP: made of recordings and descriptions, and the consents to them."""
