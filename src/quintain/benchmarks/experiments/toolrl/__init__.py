"""Experiments on reinforcement learning with search and code."""
