"""Facts scattered over a long text that is read page by page, with the question known from the start.

Start at `game`.
"""
