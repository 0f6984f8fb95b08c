"""Registered claims of the family `search`."""
