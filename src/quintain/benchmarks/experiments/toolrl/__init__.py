"""Experiments of the family `toolrl`."""
