"""Find out by asking what a user has in mind, then hand it in: the wish is hidden until it is asked for.

Start at `game`.
"""
