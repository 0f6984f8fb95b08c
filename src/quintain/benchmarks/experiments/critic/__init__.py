"""Experiments of the family `critic`."""
