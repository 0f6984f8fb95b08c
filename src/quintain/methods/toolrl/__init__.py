"""Reinforcement learning with search and code; docs/methods/search-and-code.md says what the methods share."""
