"""Agents that get better while the model stays as it is."""
