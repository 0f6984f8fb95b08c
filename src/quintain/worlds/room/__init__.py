"""Lay out a room: place boxes so that none overlap and none stick out, as a list in JSON; a bad layout is tried again.

Start at `game`.
"""
