"""Critics off-policy: what a turn is worth, learned from a buffer of earlier episodes."""
