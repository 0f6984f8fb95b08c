"""Chores in a house: find a thing, clean, heat or cool it, bring it where it belongs, or look at it under a lamp.

Start at `game`.
"""
