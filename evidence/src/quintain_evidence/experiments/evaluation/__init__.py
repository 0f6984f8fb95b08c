"""Registered claims of the family `evaluation`."""
