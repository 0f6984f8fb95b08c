"""The warm start: where a policy comes from, what it imitates before a method trains it, and for how long."""
