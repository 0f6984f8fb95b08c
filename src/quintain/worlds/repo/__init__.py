"""A small repository whose tests fail: read, mend, test, hand in. Start at `game`."""
