"""Registered claims of the family `agents`."""
