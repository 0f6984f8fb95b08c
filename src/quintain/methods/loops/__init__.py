"""The loops that methods are values in."""
