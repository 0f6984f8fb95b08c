"""A shop's help desk: a database behind tools, a written policy, and a customer who wants something of them.

Start at `game`.
"""
