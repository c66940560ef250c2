"""Who may use a server, how much of it, and the records of it. Knows no routes and no messages."""
