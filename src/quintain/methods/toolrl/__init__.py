"""Reinforcement learning of agents whose turns call tools: search, code, endpoints of others, large collections."""
