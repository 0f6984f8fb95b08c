"""Imitation: learning from good behaviour."""
