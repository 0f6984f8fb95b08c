"""Hundreds of tools, of which groups do the same to different data, and a retriever that lists a few (DARE).

Start at `game`.
"""
