"""The pages for people: one that speaks, and one that shows the HTTP API."""
