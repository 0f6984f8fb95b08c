"""Registered claims of the family `multiagent`."""
