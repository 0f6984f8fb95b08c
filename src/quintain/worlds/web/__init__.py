"""A small site to act in: follow links, close pop-ups, leave dead ends, fill in forms, answer.

Start at `game`.
"""
