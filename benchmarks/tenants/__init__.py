"""Tenants of one server, of whom one attacks the others."""
