"""A web shop: search, click through results and options, go back from what does not fit, and buy.

Start at `game`.
"""
