"""Experiments of the family `rl`."""
