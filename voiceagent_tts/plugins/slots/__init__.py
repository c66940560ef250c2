"""Tells load balancers how many rows are free."""
