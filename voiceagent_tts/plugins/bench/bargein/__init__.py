"""Barge-in truth: what an agent's history says, against what was heard in its sound."""
