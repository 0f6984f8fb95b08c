"""The worlds of an AgentGym server (arXiv 2406.04151), over its HTTP protocol, without its package.

Start at `environment`.
"""
