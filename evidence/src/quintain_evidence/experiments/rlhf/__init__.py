"""Experiments of the family `rlhf`, by row."""
