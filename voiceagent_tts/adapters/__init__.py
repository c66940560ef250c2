"""Voice agent frameworks as hosts of this voice."""
