"""Claims of methods that learn from a reward model."""
