"""Preference: learning from what is better and what is worse."""
