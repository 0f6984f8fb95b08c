"""Rooms in a row, locked doors between them: fetch the key, open the door, reach the flag.

Start at `game`.
"""
