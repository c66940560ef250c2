"""What the client wrote, and what is spoken of it."""
