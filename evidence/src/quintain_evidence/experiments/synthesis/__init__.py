"""Registered claims of the family `synthesis`."""
