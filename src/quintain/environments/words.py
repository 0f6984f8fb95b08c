"""Short names for things that have a value: what facts in the worlds are about."""

KEYS = (
    *("red", "blue", "green", "gold", "gray", "pink", "white", "black"),
    *("apple", "bread", "corn", "date", "fig", "grape", "lemon", "melon"),
    *("ant", "bear", "cat", "deer", "eagle", "fox", "goat", "horse"),
    *("iron", "lead", "tin", "zinc", "salt", "sand", "clay", "chalk"),
    *("north", "east", "south", "west", "hill", "lake", "river", "wood"),
)
"""Forty words, none of which is part of another one's name for a value."""
