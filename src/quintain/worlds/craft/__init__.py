"""Gather, make tools, gather what only the tools reach: a tech tree over a few places. Start at `game`."""
