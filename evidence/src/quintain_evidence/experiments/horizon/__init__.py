"""Registered claims of the family `horizon`."""
