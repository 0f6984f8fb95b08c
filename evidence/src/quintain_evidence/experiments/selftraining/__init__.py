"""Experiments of the family `selftraining`."""
