"""Two seats with a card each: only together do they know enough, and only by talking. Start at `game`."""
