"""The worlds of an OpenEnv server (protocol as in openenv 0.10.0), without its package.

Start at `environment`.
"""
