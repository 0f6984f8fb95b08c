"""Experiments of the family `imitation`."""
