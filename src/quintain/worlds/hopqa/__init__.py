"""Questions that take several facts: search for one, then for the next, then answer. Start at `game`."""
