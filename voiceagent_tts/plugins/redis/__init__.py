"""A connection to Redis, which servers share. No plugin of its own: what several do with Redis."""
