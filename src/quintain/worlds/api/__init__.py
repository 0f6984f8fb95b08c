"""An API of drawn calls over hidden tables: the result of one fills an argument of the next.

Start at `game`.
"""
