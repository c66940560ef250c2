"""API keys, their scopes, and limits of keys and addresses; commands that manage the keys."""
