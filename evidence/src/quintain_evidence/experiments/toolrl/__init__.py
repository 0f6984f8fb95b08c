"""Registered claims of the family `toolrl`."""
