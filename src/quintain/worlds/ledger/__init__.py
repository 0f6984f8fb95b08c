"""A long ledger as objects or as text (CaveAgent). Start at `game`."""
