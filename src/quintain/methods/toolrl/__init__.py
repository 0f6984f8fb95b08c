"""Reinforcement learning of agents whose turns call tools: search, code, and endpoints of others."""
