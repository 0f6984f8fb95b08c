"""Reinforcement learning: multi-turn policy gradients."""
