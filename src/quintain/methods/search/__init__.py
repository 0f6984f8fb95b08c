"""Learning from what a search tried: attempts that were taken back, trees, and what they say of each step."""
