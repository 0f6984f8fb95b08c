"""Agents that share a task with others, or serve them."""
