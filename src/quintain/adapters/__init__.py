"""Environments of other people, a folder each: packages, servers and protocols behind our own protocol.

Each is found by its name in `quintain.environments.catalog` and imports its package when it is built.
"""
